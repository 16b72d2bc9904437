import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A producer that waits for the answer of a consumer. */
final class Requesting {
    private static final int SEND_REPLY = 325;
    private static final long WAIT_MS = 60_000;

    private final Crew crew;

    Requesting(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("request and reply", this::requestAndReply);
    }

    private void requestAndReply(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("request");
        DefaultMQProducer requester = requester();
        Member responder = crew.member("request", "one");
        Map<String, Object> asked = new HashMap<>();
        responder.consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (!"silent".equals(message.getTags())) {
                    asked.put(message.getKeys(), stable(message));
                    reply(steps, message);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        responder.start(topic);
        Crew.eventually(() -> responder.queues(topic).size() == 1);
        steps.step("reply", () -> stable((MessageExt) requester.request(crew.message(topic, null, "question"), WAIT_MS)));
        steps.step("as the responder saw it", () -> asked.get("question"));
        steps.step("reply by callback", () -> {
            CompletableFuture<Object> reply = new CompletableFuture<>();
            requester.request(crew.message(topic, null, "question 2"), new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    reply.complete(message == null ? "nothing" : new String(message.getBody()));
                }

                @Override
                public void onException(Throwable failure) {
                    reply.completeExceptionally(failure);
                }
            }, WAIT_MS);
            return reply.get(WAIT_MS, TimeUnit.MILLISECONDS);
        });
        steps.step("nobody replies", () -> requester.request(crew.message(topic, "silent", "question 3"), 2000));
        responder.stop();
        replies(steps);
    }

    /** Replies find their way by the client's id, so no other client on this machine may have it. */
    private DefaultMQProducer requester() throws Exception {
        DefaultMQProducer requester = new DefaultMQProducer(crew.client.topic("requester"));
        requester.setNamesrvAddr(crew.client.namesrv);
        requester.setInstanceName(crew.client.topic("requester"));
        Client.patient(requester);
        requester.start();
        return requester;
    }

    private void reply(Answers.Steps steps, MessageExt message) {
        steps.step("sent as reply to " + message.getKeys(), () -> {
            Map<String, Object> sent = crew.views.sent(crew.client.producer.send(
                MessageUtil.createReplyMessage(message, Bodies.utf8("answer to " + message.getKeys()))));
            sent.remove("offset"); // of the reply topic, which every run shares
            sent.remove("queue");
            return sent;
        });
    }

    private void replies(Answers.Steps steps) throws Exception {
        String topic = Client.CLUSTER + "_REPLY_TOPIC";
        steps.step("topic of the replies", () -> crew.route(topic));
        String gone = "CORRELATION_ID\1c\2REPLY_TO_CLIENT\1nobody\2TTL\1" + "1000\2MSG_TYPE\1reply\2";
        steps.step("reply to nobody", () -> raw(topic, gone));
        steps.step("reply to no name", () -> raw(topic, "CORRELATION_ID\1c\2MSG_TYPE\1reply\2"));
    }

    private Object raw(String topic, String properties) throws Exception {
        Map<String, Object> view = crew.views.answer(crew.client.sendRaw(SEND_REPLY, topic, Bodies.utf8("late"), "i", properties));
        ((Map<?, ?>) view.get("ext")).remove("queueOffset"); // every run shares this topic
        return view;
    }

    private Object stable(MessageExt message) {
        Map<String, Object> view = crew.view(message);
        @SuppressWarnings("unchecked")
        Map<String, String> properties = (Map<String, String>) view.get("properties");
        properties.replaceAll((name, value) -> name.equals("CORRELATION_ID") || name.equals("REPLY_TO_CLIENT")
            || name.endsWith("TIME") ? "<other>" : value);
        view.remove("offset");
        view.remove("storeSizeLessIds"); // its ids are not equally long everywhere
        return view;
    }
}
