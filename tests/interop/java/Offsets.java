import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Bounds of a queue, offsets by time, and the offsets a group has committed. */
final class Offsets {
    private final Client client;
    private final Views views;

    Offsets(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("queue bounds", this::bounds);
        scenarios.put("offset by time", this::byTime);
        scenarios.put("consumer offsets", this::committed);
        scenarios.put("consumer offsets, raw", this::raw);
    }

    private void bounds(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("bounds", 2, 2, 6);
        for (int i = 0; i < 3; i++) {
            client.producer.send(new Message(topic, Bodies.text(1)), client.queue(topic, 0));
        }
        client.settle(topic, 0, 3);
        MessageExt first = client.pullAll(topic, 0).get(0);
        steps.step("earliest store time", () ->
            client.producer.earliestMsgStoreTime(client.queue(topic, 0)) == first.getStoreTimestamp());
        MessageQueue[] queues = {client.queue(topic, 0), client.queue(topic, 1), client.queue(topic, 7),
            client.queue(client.topic("nowhere"), 0), client.queue(topic, -1)};
        String[] names = {"three messages", "empty queue", "unknown queue", "unknown topic", "queue -1"};
        for (int i = 0; i < queues.length; i++) {
            MessageQueue queue = queues[i];
            steps.step(names[i] + ", min", () -> client.consumer.minOffset(queue));
            steps.step(names[i] + ", max", () -> client.consumer.maxOffset(queue));
            steps.step(names[i] + ", by time", () -> client.consumer.searchOffset(queue, System.currentTimeMillis()));
            if (i > 0) {
                steps.step(names[i] + ", earliest store time", () -> client.producer.earliestMsgStoreTime(queue));
            }
            for (int code = 29; code <= 32; code++) {
                int request = code;
                if (i > 0) {
                    steps.step(names[i] + ", raw " + code, () -> views.answer(client.raw(
                        request, "topic", queue.getTopic(), "queueId", queue.getQueueId(), "timestamp", 0)));
                }
            }
        }
    }

    private void byTime(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("bytime");
        MessageQueue queue = client.queue(topic, 0);
        for (int i = 0; i < 4; i++) {
            client.producer.send(new Message(topic, Bodies.text(1)), queue);
            Thread.sleep(40);
        }
        client.settle(topic, 0, 4);
        List<Long> times = new ArrayList<>();
        client.pullAll(topic, 0).forEach(message -> times.add(message.getStoreTimestamp()));
        Map<String, Long> asked = new TreeMap<>();
        asked.put("time 0", 0L);
        asked.put("time -1", -1L);
        asked.put("time long past the end", times.get(3) + 3_600_000);
        asked.put("time without end", Long.MAX_VALUE);
        for (int i = 0; i < 4; i++) {
            asked.put("just before " + i, times.get(i) - 15);
            asked.put("time of " + i, times.get(i));
            asked.put("just after " + i, times.get(i) + 15);
        }
        asked.forEach((name, time) -> {
            steps.step(name, () -> client.consumer.searchOffset(queue, time));
            steps.step(name + ", upper", () -> views.answer(client.raw(
                29, "topic", topic, "queueId", 0, "timestamp", time, "boundaryType", "upper")));
        });
    }

    private void committed(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("committed", 2, 2, 6);
        for (int i = 0; i < 5; i++) {
            client.producer.send(new Message(topic, Bodies.text(1)), client.queue(topic, 0));
        }
        client.settle(topic, 0, 5);
        DefaultMQPullConsumer consumer = client.consumer;
        MessageQueue queue = client.queue(topic, 0);
        MessageQueue empty = client.queue(topic, 1);
        consumer.pull(queue, "*", 0, 1); // makes the group known
        OffsetStore store = consumer.getDefaultMQPullConsumerImpl().getOffsetStore();
        steps.step("never committed", () -> consumer.fetchConsumeOffset(queue, true));
        steps.step("never committed, empty queue", () -> consumer.fetchConsumeOffset(empty, true));
        for (long offset : new long[] {3, 5, 2, 0, 100}) {
            steps.step("commit " + offset, () -> {
                store.updateConsumeOffsetToBroker(queue, offset, false);
                return consumer.fetchConsumeOffset(queue, true);
            });
        }
        steps.step("commit 4 oneway", () -> {
            store.updateConsumeOffsetToBroker(queue, 4, true);
            Client.eventually(() -> consumer.fetchConsumeOffset(queue, true) == 4);
            return consumer.fetchConsumeOffset(queue, true);
        });
        steps.step("commit on an empty queue", () -> {
            store.updateConsumeOffsetToBroker(empty, 7, false);
            return consumer.fetchConsumeOffset(empty, true);
        });
        steps.step("commit with a pull", () -> {
            Object answer = views.answerHead(client.raw(11, "consumerGroup", client.topic("consumer"), "topic", topic, "queueId", 0,
                "queueOffset", 0, "maxMsgNums", 1, "sysFlag", 5, "commitOffset", 1, "suspendTimeoutMillis", 0, "subscription", "*",
                "subVersion", 0));
            return Answers.fields("answer", answer, "committed", consumer.fetchConsumeOffset(queue, true));
        });
    }

    private void raw(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("offsetsraw", 2, 2, 6);
        client.producer.send(new Message(topic, Bodies.text(1)), client.queue(topic, 0));
        client.settle(topic, 0, 1);
        String group = client.topic("rawgroup");
        steps.step("commit, unknown group", () -> views.answer(commit(group, topic, 0, 1)));
        steps.step("fetch, unknown group", () -> views.answer(fetch(group, topic, 0)));
        steps.step("fetch, unknown group, empty queue", () -> views.answer(fetch(group, topic, 1)));
        steps.step("fetch, unknown topic", () -> views.answer(fetch(group, client.topic("nowhere"), 0)));
        steps.step("fetch, unknown queue", () -> views.answer(fetch(group, topic, 9)));
        steps.step("fetch, zero wanted", () -> views.answer(fetch(group, topic, 0, "setZeroIfNotFound", true)));
        steps.step("fetch, zero not wanted", () -> views.answer(fetch(group, topic, 0, "setZeroIfNotFound", false)));
        steps.step("the group becomes known", () -> views.answerHead(client.raw(11, "consumerGroup", group, "topic", topic,
            "queueId", 0, "queueOffset", 0, "maxMsgNums", 1, "sysFlag", 4, "commitOffset", 0, "suspendTimeoutMillis", 0,
            "subscription", "*", "subVersion", 0)));
        steps.step("commit, known group", () -> views.answer(commit(group, topic, 0, 1)));
        steps.step("fetch, known group", () -> views.answer(fetch(group, topic, 0)));
        steps.step("commit -1", () -> views.answer(commit(group, topic, 0, -1)));
        steps.step("fetch after -1", () -> views.answer(fetch(group, topic, 0)));
        steps.step("commit, unknown topic", () -> views.answer(commit(group, client.topic("nowhere"), 0, 1)));
        steps.step("commit, unknown queue", () -> views.answer(commit(group, topic, 9, 1)));
        steps.step("commit without an offset", () -> views.answer(client.raw(
            15, "consumerGroup", group, "topic", topic, "queueId", 0)));
    }

    private RemotingCommand commit(String group, String topic, int queue, long offset)
        throws Exception {
        return client.raw(15, "consumerGroup", group, "topic", topic, "queueId", queue, "commitOffset", offset);
    }

    private RemotingCommand fetch(String group, String topic, int queue, Object... more)
        throws Exception {
        List<Object> fields = new ArrayList<>(Arrays.asList("consumerGroup", group, "topic", topic, "queueId", queue));
        fields.addAll(Arrays.asList(more));
        return client.raw(14, fields.toArray());
    }
}
