import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends one message and consumes it, both traced; prints the message's id. Arguments: name server, topic, prefix of groups. */
public final class Traced {
    private static final long PATIENCE_S = 60;

    private Traced() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2] + "-readers", true, null);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        CountDownLatch came = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            came.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(args[2] + "-senders", true, null);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        String id = producer.send(new Message(args[1], "tag", "key", "theirs".getBytes("UTF-8"))).getMsgId();
        boolean isHere = came.await(PATIENCE_S, TimeUnit.SECONDS);
        Thread.sleep(1000); // what comes after the listener is noted when it has returned
        producer.shutdown();
        consumer.shutdown();
        System.out.println((isHere ? "id " : "lost ") + id);
        System.exit(0);
    }
}
