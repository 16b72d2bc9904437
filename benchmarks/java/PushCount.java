import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Counts what a push consumer is given: PushCount NAMESRV TOPIC GROUP WARM-UP COUNT; prints milliseconds for COUNT. */
public class PushCount {
    public static void main(String[] arguments) throws Exception {
        long warmUp = Long.parseLong(arguments[3]);
        long count = Long.parseLong(arguments[4]);
        AtomicLong seen = new AtomicLong();
        AtomicLong began = new AtomicLong();
        AtomicLong ended = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = seen.addAndGet(messages.size());
            if (now >= warmUp && now - messages.size() < warmUp) {
                began.set(System.nanoTime());
                System.out.println("warm");
            }
            if (now >= warmUp + count && ended.compareAndSet(0, System.nanoTime())) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(300, TimeUnit.SECONDS)) {
            throw new IllegalStateException("only " + seen.get() + " messages came");
        }
        System.out.println("milliseconds " + (ended.get() - began.get()) / 1_000_000);
        consumer.shutdown();
    }
}
