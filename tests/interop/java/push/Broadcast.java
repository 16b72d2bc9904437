import java.util.Map;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;

/** Every member gets everything; what it has got is written down at the member's own place. */
final class Broadcast {
    private final Crew crew;

    Broadcast(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("broadcast", this::broadcast);
    }

    private void broadcast(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("broadcast", 2, 2, 6);
        crew.fill(topic, 2, "m", 10);
        Member one = crew.member("broadcast", "one").broadcasting().start(topic);
        Member two = crew.member("broadcast", "two").broadcasting().concurrently((delivery, context) ->
            delivery.key.equals("m3") ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        two.start(topic);
        steps.step("one", () -> one.awaited(10));
        steps.step("two, which fails once", () -> two.awaited(10));
        crew.fill(topic, 2, "late", 2);
        steps.step("one, later", () -> one.awaited(12).size());
        steps.step("two, later", () -> two.awaited(12).size());
        one.stop();
        two.stop();
        steps.step("kept by the broker", () -> crew.committed("broadcast", topic, 0, 0));
        steps.step("retry topic", () -> crew.route(crew.retry("broadcast")));
        crew.fill(topic, 2, "absent", 2);
        Member again = crew.member("broadcast", "one").broadcasting().start(topic);
        steps.step("one, started again", () -> again.awaited(2));
        again.stop();
    }
}
