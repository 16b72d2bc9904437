import java.io.PrintWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends messages of every kind a queue holds, small and large, and writes a line for each that was acknowledged:
 * topic, queue, offset, offset id, key, body. Ends early, and in order, when the broker goes away.
 */
final class Load {
    private static final int BATCH = 5;

    private final Client client;
    private final DefaultMQProducer one;
    private final DefaultMQProducer many;
    private final Random random = new Random(7);

    Load(Client client) throws Exception {
        this.client = client;
        one = client.producer;
        many = client.producer("many", Store.MANY_QUEUES);
    }

    void run(int count, String file) throws Exception {
        String run = Long.toString(System.currentTimeMillis(), 36);
        try (PrintWriter acknowledged = new PrintWriter(file, "UTF-8")) {
            for (int i = 0; i < count; i++) {
                List<Message> messages = messages(run, i);
                SendResult result;
                try {
                    result = send(i, messages);
                } catch (Exception gone) {
                    System.out.println("broken off after " + i + ": " + gone);
                    return;
                }
                note(acknowledged, messages, result);
            }
        }
        commit();
    }

    private SendResult send(int i, List<Message> messages) throws Exception {
        DefaultMQProducer producer = i % 3 == 0 ? one : many;
        return messages.size() == 1 ? producer.send(messages.get(0)) : producer.send(messages);
    }

    private List<Message> messages(String run, int i) {
        List<Message> messages = new ArrayList<>();
        for (int part = 0; part < (i % 40 == 39 ? BATCH : 1); part++) {
            String key = run + "-" + i + "-" + part;
            Message message = new Message(i % 3 == 0 ? Store.ONE : Store.MANY, i % 4 == 0 ? null : "tag" + i % 4, key, body(i));
            message.setKeys(key + " shared" + i % 200);
            message.setFlag(i);
            if (i % 7 == 0) {
                message.putUserProperty("\u540d", "\u4e2d\u6587 \ud83d\ude00 " + i);
            }
            messages.add(message);
        }
        return messages;
    }

    private byte[] body(int i) {
        if (i % 50 == 49) {
            return Bodies.text(20_000 + random.nextInt(20_000)); // compressed
        }
        byte[] body = new byte[1 + random.nextInt(i % 60 == 11 ? 100_000 : 3000)];
        random.nextBytes(body);
        return body;
    }

    private void note(PrintWriter acknowledged, List<Message> messages, SendResult result) {
        String[] ids = result.getOffsetMsgId().split(",");
        for (int part = 0; part < messages.size(); part++) {
            Message message = messages.get(part);
            String key = message.getKeys().split(" ")[0];
            acknowledged.println(String.join("\t", message.getTopic(), "" + result.getMessageQueue().getQueueId(),
                "" + (result.getQueueOffset() + part), ids[part], key, Views.body(message.getBody())));
        }
        acknowledged.flush();
    }

    /** Something for consumerOffset.json. */
    private void commit() throws Exception {
        client.settle(Store.ONE, 0, 1);
        client.consumer.pull(client.queue(Store.ONE, 0), "*", 0, 1); // makes the group known
        OffsetStore offsets = client.consumer.getDefaultMQPullConsumerImpl().getOffsetStore();
        offsets.updateConsumeOffsetToBroker(client.queue(Store.ONE, 0), 17, false);
    }
}
