import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A pull consumer of a new group that stores an offset right after its start, before anything has made its group
 * known to the broker; as its regular commits do, without waiting for an answer.
 * Usage: EarlyCommit namesrvAddr brokerAddr prefix
 * Prints "stored OFFSET": what the broker then knows.
 */
public final class EarlyCommit {
    private static final long OFFSET = 5;

    private EarlyCommit() {
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            Client client = new Client(arguments[0], arguments[1], arguments[2]);
            MessageQueue queue = client.queue(client.createTopic("early", 1, 1, 6), 0);
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(client.topic("early"));
            consumer.setNamesrvAddr(client.namesrv);
            consumer.setInstanceName(client.topic("early"));
            consumer.start();
            OffsetStore store = consumer.getDefaultMQPullConsumerImpl().getOffsetStore();
            store.updateConsumeOffsetToBroker(queue, OFFSET, true);
            Client.eventually(() -> consumer.fetchConsumeOffset(queue, true) == OFFSET);
            System.out.println("stored " + consumer.fetchConsumeOffset(queue, true));
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.exit(status);
    }
}
