import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** One push consumer of a group, a client instance of its own, and all that its listener got. */
final class Member {
    private static final long SETTLE_MS = Crew.PATIENT_MS;
    private static final long SETTLED_MS = 1500;

    final DefaultMQPushConsumer consumer;
    final List<Delivery> got = new CopyOnWriteArrayList<>();
    private final Crew crew;

    /** What the listener makes of a message; a batch is what its last message is. */
    interface Judge {
        ConsumeConcurrentlyStatus judge(Delivery delivery, ConsumeConcurrentlyContext context);
    }

    interface OrderlyJudge {
        ConsumeOrderlyStatus judge(Delivery delivery);
    }

    Member(Crew crew, String group, String name) {
        this.crew = crew;
        consumer = new DefaultMQPushConsumer(crew.client.topic(group));
        consumer.setNamesrvAddr(crew.client.namesrv);
        consumer.setInstanceName(crew.client.topic(group + "-" + name));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        concurrently((delivery, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
    }

    Member concurrently(Judge judge) {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            ConsumeConcurrentlyStatus status = null;
            for (Delivery delivery : keep(messages)) {
                status = judge.judge(delivery, context);
            }
            return status;
        });
        return this;
    }

    Member orderly(OrderlyJudge judge) {
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            ConsumeOrderlyStatus status = null;
            for (Delivery delivery : keep(messages)) {
                status = judge.judge(delivery);
            }
            return status;
        });
        return this;
    }

    Member orderly() {
        return orderly(delivery -> ConsumeOrderlyStatus.SUCCESS);
    }

    /** The enumeration moved to another package in 5.0. */
    Member broadcasting() throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
        return this;
    }

    private List<Delivery> keep(List<MessageExt> messages) {
        List<Delivery> deliveries = new ArrayList<>();
        messages.forEach(message -> deliveries.add(new Delivery(message, crew)));
        got.addAll(deliveries);
        return deliveries;
    }

    Member start(String topic, String expression) throws Exception {
        consumer.subscribe(topic, expression);
        Client.patient(consumer);
        consumer.start();
        return this;
    }

    Member start(String topic) throws Exception {
        return start(topic, "*");
    }

    /** Sends the offsets and says good-bye. */
    void stop() {
        consumer.shutdown();
    }

    /** Waits until that many came, and a little for those too many; all, sorted. */
    List<String> awaited(int count) throws Exception {
        Crew.eventually(() -> got.size() >= count);
        crew.quiet();
        return places();
    }

    /** The same where it is not sure that so many will come: waits until nothing has come for a while. */
    void settled(int count) throws Exception {
        Client.eventually(() -> got.size() >= count, SETTLE_MS);
        for (int before = -1; before != got.size(); Thread.sleep(SETTLED_MS)) {
            before = got.size();
        }
    }

    List<String> places() {
        List<String> places = got.stream().map(Delivery::place).collect(Collectors.toList());
        Collections.sort(places);
        return places;
    }

    /** The keys in the order in which each queue gave them. */
    Map<String, List<String>> keysByQueue() {
        Map<String, List<String>> keys = new TreeMap<>();
        got.forEach(delivery -> keys.computeIfAbsent("queue " + delivery.queue, queue -> new ArrayList<>()).add(delivery.key));
        return keys;
    }

    List<Delivery> of(String key) {
        return got.stream().filter(delivery -> delivery.key.equals(key)).collect(Collectors.toList());
    }

    /** The queues of a topic that this member has now. */
    List<Integer> queues(String topic) {
        return new ArrayList<>(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().entrySet()
            .stream().filter(entry -> entry.getKey().getTopic().equals(topic) && !entry.getValue().isDropped())
            .map(Map.Entry::getKey).map(MessageQueue::getQueueId).collect(Collectors.toCollection(TreeSet::new)));
    }
}
