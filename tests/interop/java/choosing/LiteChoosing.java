import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Lite pull consumers that choose by SQL92: what they poll until nothing comes. */
final class LiteChoosing {
    static final int EMPTY_POLLS = 3;
    static final long POLL_MS = 2000;
    static final int MAX_POLLS = 100;

    static void choose(String namesrv, String topic, List<String> expressions) throws Exception {
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
            System.out.println("lite " + number + " " + polled(consumers.get(number)));
            consumers.get(number).shutdown();
        }
    }

    static Set<Integer> polled(DefaultLitePullConsumer consumer) {
        Set<Integer> got = new TreeSet<>();
        int empty = 0;
        for (int turn = 0; turn < MAX_POLLS && empty < EMPTY_POLLS; turn++) {
            List<MessageExt> messages = consumer.poll(POLL_MS);
            empty = messages.isEmpty() ? empty + 1 : 0;
            for (MessageExt message : messages) {
                got.add(Integer.parseInt(new String(message.getBody())));
            }
        }
        return got;
    }
}
