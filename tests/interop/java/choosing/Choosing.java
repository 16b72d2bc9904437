import java.net.URLDecoder;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumers that choose by SQL92. Arguments: name servers, topic, `lite` or `push` (then there are no lite pull
 * consumers), then for each expression how many messages are waited for, and the expression, quoted as in a URL. Half
 * of the messages are there before the consumers, half come while they wait. A line of the output is `push` or `lite`, the number of an expression, and the numbers of the
 * messages that came; or what a bad expression was answered with.
 */
public final class Choosing {
    static final int MESSAGES = 40;
    static final long QUIET_MS = 3000;
    static final long PATIENCE_MS = 60000;

    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        String topic = arguments[1];
        List<String> expressions = new ArrayList<>();
        List<Integer> counts = new ArrayList<>();
        for (int at = 3; at < arguments.length; at += 2) {
            counts.add(Integer.parseInt(arguments[at]));
            expressions.add(URLDecoder.decode(arguments[at + 1], "UTF-8"));
        }
        DefaultMQProducer producer = new DefaultMQProducer(topic + "-producers");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        send(producer, topic, 0, MESSAGES / 2);
        List<Set<Integer>> got = new ArrayList<>();
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < expressions.size(); number++) {
            got.add(new ConcurrentSkipListSet<>());
            consumers.add(pushing(namesrv, topic, number, expressions.get(number), got.get(number)));
        }
        settle(got, 0);
        send(producer, topic, MESSAGES / 2, MESSAGES);
        settle(got, counts.stream().mapToInt(Integer::intValue).sum());
        for (int number = 0; number < expressions.size(); number++) {
            System.out.println("push " + number + " " + new TreeSet<>(got.get(number)));
            consumers.get(number).shutdown();
        }
        System.out.println("bad " + refusal(namesrv, topic));
        if (arguments[2].equals("lite")) {
            lite(namesrv, topic, expressions, counts);
        }
        producer.shutdown();
        System.exit(0);
    }

    static void send(DefaultMQProducer producer, String topic, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            Message message = new Message(topic, "tag" + number % 2, "k" + number, ("" + number).getBytes());
            message.putUserProperty("n", "" + number);
            message.putUserProperty("s", "s" + number % 3);
            if (number % 4 == 0) {
                message.putUserProperty("quarter", number % 8 == 0 ? "yes" : "true");
            }
            producer.send(message);
        }
    }

    static DefaultMQPushConsumer pushing(
        String namesrv, String topic, int number, String expression, Set<Integer> got) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "-push" + number);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(topic + "-push" + number);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                got.add(Integer.parseInt(new String(message.getBody())));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    static String refusal(String namesrv, String topic) throws Exception {
        try {
            pushing(namesrv, topic, 999, "n >", new TreeSet<>());
            return "accepted";
        } catch (MQClientException refused) {
            return "" + refused.getResponseCode();
        }
    }

    /** Until so many have come, and then nothing for a while. */
    static void settle(List<? extends Set<Integer>> got, int expected) throws InterruptedException {
        long begun = System.currentTimeMillis();
        long changed = begun;
        int count = -1;
        while (System.currentTimeMillis() - begun < PATIENCE_MS
            && (count < expected || System.currentTimeMillis() - changed < QUIET_MS)) {
            int now = got.stream().mapToInt(Set::size).sum();
            if (now != count) {
                count = now;
                changed = System.currentTimeMillis();
            }
            Thread.sleep(100);
        }
    }

    /** Lite pull consumers are younger than the oldest of our clients. */
    static void lite(String namesrv, String topic, List<String> expressions, List<Integer> counts) throws Exception {
        Class.forName("LiteChoosing")
            .getDeclaredMethod("choose", String.class, String.class, List.class, List.class)
            .invoke(null, namesrv, topic, expressions, counts);
    }
}
