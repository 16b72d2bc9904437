import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Lite pull consumers that choose by SQL92: what they poll until so many have come, and then nothing does. */
final class LiteChoosing {
    static final long POLL_MS = 2000;
    static final int MAX_POLLS = 30;

    static void choose(String namesrv, String topic, List<String> expressions, List<Integer> counts)
        throws Exception {
        List<DefaultLitePullConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < expressions.size(); number++) {
            DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(topic + "-lite" + number);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName(topic + "-lite" + number);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setPullThreadNums(2);
            consumer.subscribe(topic, MessageSelector.bySql(expressions.get(number)));
            consumer.start();
            consumers.add(consumer);
        }
        for (int number = 0; number < expressions.size(); number++) {
            System.out.println("lite " + number + " " + polled(consumers.get(number), counts.get(number)));
            consumers.get(number).shutdown();
        }
    }

    static Set<Integer> polled(DefaultLitePullConsumer consumer, int count) {
        Set<Integer> got = new TreeSet<>();
        boolean more = true;
        for (int turn = 0; turn < MAX_POLLS && (more || got.size() < count); turn++) {
            List<MessageExt> messages = consumer.poll(POLL_MS);
            more = !messages.isEmpty();
            for (MessageExt message : messages) {
                got.add(Integer.parseInt(new String(message.getBody())));
            }
        }
        return got;
    }
}
