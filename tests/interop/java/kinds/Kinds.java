import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Light queues, and topics of inner batches: each round sends messages, reads all there is, prints what it saw.
 * Usage: Kinds namesrvAddr brokerAddr ROUND...
 */
public final class Kinds {
    private static final String PARENT = "KindParent";
    private static final String BATCHES = "KindBatches";
    private static final String[] LIGHTS = {"%LMQ%every", "%LMQ%odd", "%LMQ%none"};
    private static final long PATIENCE_MS = 60_000;
    private static final long COMMIT_MS = 5_000; // a one-way request, which is not always taken

    private final Client client;
    private final int round;

    private Kinds(Client client, int round) {
        this.client = client;
        this.round = round;
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            Client client = new Client(arguments[0], arguments[1], "Kind");
            for (int i = 2; i < arguments.length; i++) {
                print("round", arguments[i]);
                new Kinds(client, Integer.parseInt(arguments[i])).run();
            }
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace(System.out);
        }
        System.exit(status); // the clients leave threads behind
    }

    private void run() throws Exception {
        create(PARENT, "");
        create(BATCHES, "+queue.type=BatchCQ");
        sendToLightQueues();
        sendBatches();
        client.settle(PARENT, 0, 6L * (round + 1));
        client.settle(BATCHES, 0, 7L * (round + 1));
        readLightQueues();
        readBatches();
        push();
    }

    private void create(String topic, String attributes) throws Exception {
        client.raw(client.brokerAddr, 17, null, "topic", topic, "defaultTopic", "TBW102", "readQueueNums", 1,
            "writeQueueNums", 1, "perm", 6, "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false,
            "attributes", round == 0 ? attributes : "");
        Client.eventually(() -> client.raw(client.namesrv, 105, null, "topic", topic).getCode() == 0, PATIENCE_MS);
        client.consumer.fetchSubscribeMessageQueues(topic);
    }

    private void sendToLightQueues() throws Exception {
        for (int n = 0; n < 6; n++) {
            Message message = new Message(PARENT, "tag" + n % 2, "key" + n, text(round + "-" + n));
            String lights = n % 2 == 0 ? LIGHTS[0] : LIGHTS[0] + "," + LIGHTS[1];
            message.putUserProperty("INNER_MULTI_DISPATCH", lights);
            sent(client.producer.send(message, new MessageQueue(PARENT, Client.BROKER, 0)));
        }
    }

    private void sendBatches() throws Exception {
        MessageQueue queue = new MessageQueue(BATCHES, Client.BROKER, 0);
        for (int size : new int[] {3, 1, 2}) {
            List<Message> messages = new ArrayList<>();
            for (int n = 0; n < size; n++) {
                messages.add(new Message(BATCHES, "tag" + n, "key" + n, text(round + "-" + size + "-" + n)));
            }
            sent(client.producer.send(messages, queue));
        }
        sent(client.producer.send(new Message(BATCHES, "alone", text(round + "-alone")), queue));
    }

    private void sent(SendResult result) {
        int ids = result.getOffsetMsgId().split(",").length;
        print("sent", result.getSendStatus() + " at " + result.getQueueOffset() + ", ids " + ids);
    }

    private void readLightQueues() throws Exception {
        for (String light : LIGHTS) {
            MessageQueue queue = new MessageQueue(light, Client.BROKER, 0);
            ends(queue);
            pullAll(queue, "*", client.consumer.minOffset(queue), 32);
        }
        MessageQueue every = new MessageQueue(LIGHTS[0], Client.BROKER, 0);
        pullAll(every, "tag1", 0, 32);
        pullAll(every, "*", 4, 2);
        DefaultMQPullConsumer group = new DefaultMQPullConsumer("%LMQ%readers");
        group.setNamesrvAddr(client.namesrv);
        group.start();
        group.fetchSubscribeMessageQueues(PARENT);
        print("committed before", group.fetchConsumeOffset(every, true));
        group.updateConsumeOffset(every, 5 + round);
        group.getDefaultMQPullConsumerImpl().persistConsumerOffset();
        Client.eventually(() -> group.fetchConsumeOffset(every, true) == 5 + round, COMMIT_MS);
        print("committed", group.fetchConsumeOffset(every, true));
        group.shutdown();
        client.settleKey(PARENT, "key5");
        print("by key", client.producer.queryMessage(PARENT, "key5", 32, 0, Long.MAX_VALUE).getMessageList().size());
    }

    private void readBatches() throws Exception {
        MessageQueue queue = new MessageQueue(BATCHES, Client.BROKER, 0);
        ends(queue);
        for (int count : new int[] {1, 3, 5, 32}) {
            pullAll(queue, "*", 0, count);
        }
        for (long offset = 0; offset < 7; offset++) {
            pullAll(queue, "*", offset, 32);
        }
        pullAll(queue, "alone", 0, 32);
    }

    private void ends(MessageQueue queue) throws Exception {
        String searched = ", at 0 " + client.consumer.searchOffset(queue, 0);
        print(queue.getTopic(), client.consumer.minOffset(queue) + " to " + client.consumer.maxOffset(queue) + searched);
    }

    /** Each pull in a line: status, what was found, where to go on. */
    private void pullAll(MessageQueue queue, String expression, long offset, int count) throws Exception {
        print("pull", queue.getTopic() + " " + expression + " from " + offset + ", " + count);
        long end = client.consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = client.consumer.pull(queue, expression, offset, count);
            List<String> found = new ArrayList<>();
            if (result.getMsgFoundList() != null) {
                for (MessageExt message : result.getMsgFoundList()) {
                    found.add(seen(message));
                }
            }
            print("  " + result.getPullStatus(), found + " next " + result.getNextBeginOffset());
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("no progress at " + offset);
            }
            offset = result.getNextBeginOffset();
        }
    }

    /** A push consumer takes the batches apart as well. */
    private void push() throws Exception {
        Map<Long, String> got = new ConcurrentSkipListMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("KindPush" + round);
        consumer.setNamesrvAddr(client.namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(BATCHES, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                got.put(message.getQueueOffset(), seen(message));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Client.eventually(() -> got.size() >= 7 * (round + 1), PATIENCE_MS);
        consumer.shutdown();
        print("pushed", got.values());
    }

    private static String seen(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        String lights = message.getProperty("INNER_MULTI_QUEUE_OFFSET");
        return message.getTopic() + "[" + message.getQueueOffset() + "] " + message.getTags() + " "
            + message.getKeys() + " " + body + (lights == null ? "" : " at " + lights);
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void print(String what, Object value) {
        System.out.println("> " + what + ": " + value);
    }
}
