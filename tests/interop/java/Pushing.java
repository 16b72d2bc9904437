import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Consuming with a listener: heartbeat, rebalance, long pulls and commits, as most users have them. */
final class Pushing {
    private static final int QUEUES = 4;
    private static final int MESSAGES = 20;
    private static final long REBALANCE_MS = 45_000; // a consumer that comes too late for one round waits 20 s for the next

    private final Client client;
    private final Views views;

    Pushing(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("push", this::push);
    }

    private void push(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("push", QUEUES, QUEUES, 6);
        for (int i = 0; i < MESSAGES; i++) {
            client.producer.send(new Message(topic, i % 2 == 0 ? "A" : "B", Bodies.text(i + 1)), client.queue(topic, i % QUEUES));
        }
        steps.step("all", () -> consume(topic, "pushall", "*", MESSAGES));
        steps.step("committed", () -> {
            Client.eventually(() -> committed(topic, "pushall").values().stream().allMatch("5"::equals));
            return committed(topic, "pushall");
        });
        steps.step("one tag", () -> consume(topic, "pushtag", "B", MESSAGES / 2));
    }

    /** What the listener of a new group got, every delivery counted. */
    private List<String> consume(String topic, String group, String expression, int count) throws Exception {
        List<String> got = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            client.topic(group), Credentials.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(client.namesrv);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> got.add(views.brief(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        Client.patient(consumer);
        consumer.start();
        Client.eventually(() -> got.size() >= count, REBALANCE_MS);
        Thread.sleep(300); // anything delivered twice would show
        consumer.shutdown(); // sends the offsets
        Collections.sort(got);
        return got;
    }

    private Map<String, Object> committed(String topic, String group) throws Exception {
        Map<String, Object> offsets = Answers.fields();
        for (int queue = 0; queue < QUEUES; queue++) {
            offsets.put("queue " + queue, client.raw(14, "consumerGroup", client.topic(group), "topic", topic, "queueId", queue)
                .getExtFields().get("offset"));
        }
        return offsets;
    }
}
