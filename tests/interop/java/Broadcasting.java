import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * A broadcasting consumer that goes on where its file of offsets says. Prints what it got when it has so many, and what came in
 * the moment after. Arguments: name server, topic, group, count.
 */
public final class Broadcasting {
    private static final long PATIENCE_MS = 60_000;

    private Broadcasting() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setClientIP("127.0.0.1");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (Method method : DefaultMQPushConsumer.class.getMethods()) { // the type is in another package of each version
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
        consumer.subscribe(args[1], "*");
        Set<String> got = Collections.synchronizedSet(new TreeSet<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> got.add(new String(message.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (got.size() < Integer.parseInt(args[3]) && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        Thread.sleep(1000); // what it should not get would come now
        consumer.shutdown(); // writes the offsets
        System.out.println("got " + String.join(" ", got));
        System.exit(0);
    }
}
