import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer with queues assigned by hand. */
final class LitePulling {
    private static final long POLL_MS = 4000;

    private final Client client;
    private final Views views;

    LitePulling(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("lite pull", this::assigned);
    }

    private void assigned(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("lite", 2, 2, 6);
        MessageQueue queue = client.queue(topic, 0);
        MessageQueue empty = client.queue(topic, 1);
        for (int i = 0; i < 5; i++) {
            client.producer.send(new Message(topic, "tag" + i, Bodies.text(i + 1)), queue);
        }
        client.settle(topic, 0, 5);
        DefaultLitePullConsumer consumer = started("lite");
        steps.step("queues", () -> Views.queues(consumer.fetchMessageQueues(topic)));
        steps.step("never committed", () -> consumer.committed(queue));
        consumer.assign(Collections.singletonList(queue));
        steps.step("from the beginning", () -> {
            consumer.seekToBegin(queue);
            return poll(consumer, 5);
        });
        steps.step("from 3", () -> {
            consumer.seek(queue, 3);
            return poll(consumer, 2);
        });
        steps.step("below the range", () -> {
            consumer.seek(queue, -1);
            return "accepted";
        });
        steps.step("beyond the range", () -> {
            consumer.seek(queue, 6);
            return "accepted";
        });
        steps.step("from the end", () -> {
            consumer.seekToEnd(queue);
            client.producer.send(new Message(topic, "late", Bodies.text(9)), queue);
            return poll(consumer, 1);
        });
        steps.step("commit", () -> {
            consumer.commitSync(); // keeps the offset; a timer sends it
            client.settle(topic, 0, 6);
            Client.eventually(() -> consumer.committed(queue) == 6);
            return consumer.committed(queue);
        });
        steps.step("offset for time 0", () -> consumer.offsetForTimestamp(queue, 0L));
        steps.step("offset for time past the end", () ->
            consumer.offsetForTimestamp(queue, System.currentTimeMillis() + 3_600_000));
        steps.step("empty queue, time 0", () -> consumer.offsetForTimestamp(empty, 0L));
    }

    private DefaultLitePullConsumer started(String name) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(client.topic(name), Credentials.hook());
        consumer.setNamesrvAddr(client.namesrv);
        consumer.setInstanceName(name);
        consumer.setAutoCommit(false);
        Client.patient(consumer);
        consumer.start();
        client.onClose(consumer::shutdown);
        return consumer;
    }

    /** Polls until that many came, or nothing comes any more. */
    private List<String> poll(DefaultLitePullConsumer consumer, int count) {
        List<String> found = new ArrayList<>();
        List<MessageExt> messages = consumer.poll(POLL_MS);
        while (!messages.isEmpty()) {
            messages.forEach(message -> found.add(views.brief(message)));
            messages = found.size() < count ? consumer.poll(POLL_MS) : Collections.emptyList();
        }
        return found;
    }
}
