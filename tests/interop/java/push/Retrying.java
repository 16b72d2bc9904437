import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;

/** Messages that a listener does not want: again later, each time later, and at last no more. */
final class Retrying {
    private final Crew crew;

    Retrying(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("retry to dead letters", this::toDeadLetters);
        scenarios.put("retry, other ways to fail", this::otherWays);
        scenarios.put("retry of a brand-new group", this::brandNew);
    }

    private void toDeadLetters(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("retry", 2, 2, 6);
        crew.createRetryTopic("retry");
        crew.send(topic, 0, "good");
        crew.send(topic, 1, "tag", "bad");
        Member member = crew.member("retry", "one").concurrently((delivery, context) -> delivery.key.equals("bad")
            ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        member.consumer.setMaxReconsumeTimes(3);
        member.start(topic);
        steps.step("delivered", () -> {
            Crew.eventually(() -> member.of("bad").size() >= 4);
            return member.got.stream().map(delivery -> delivery.key + " " + delivery.times).sorted().collect(Collectors.toList());
        });
        steps.step("delays", () -> {
            List<Delivery> bad = member.of("bad");
            List<String> delays = new ArrayList<>();
            for (int i = 1; i < bad.size(); i++) {
                delays.add(Delaying.lateness(Delaying.SECONDS[2 + i], bad.get(i - 1).at, bad.get(i)));
            }
            return delays;
        });
        for (int i = 0; i < 4; i++) {
            int which = i;
            steps.step("time " + i, () -> withoutOffset(member.of("bad").get(which)));
        }
        steps.step("dead letter", () -> crew.deadLetter("retry", "bad"));
        steps.step("no more deliveries", () -> {
            crew.quiet();
            return member.of("bad").size();
        });
        steps.step("topic of the dead letters", () -> crew.route(crew.deadLetters("retry")));
        steps.step("topic of the retries", () -> crew.route(crew.retry("retry")));
        steps.step("committed", () -> crew.committed("retry", topic, 1, 1));
        steps.step("committed of the retries", () -> crew.committed("retry", crew.retry("retry"), 3));
        member.stop();
    }

    private void otherWays(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("ways");
        crew.createRetryTopic("ways");
        String[] ways = {"exception", "null", "level 1", "straight to dead letters"};
        for (String way : ways) {
            crew.send(topic, 0, way);
        }
        Member member = crew.member("ways", "one").concurrently((delivery, context) -> {
            if (delivery.times > 0) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            if (delivery.key.equals("exception")) {
                throw new IllegalStateException("as wanted");
            }
            context.setDelayLevelWhenNextConsume(delivery.key.equals("level 1") ? 1 : delivery.key.startsWith("straight") ? -1 : 0);
            return delivery.key.equals("null") ? null : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        member.start(topic);
        steps.step("delivered", () -> {
            Crew.eventually(() -> member.got.size() >= 7);
            crew.quiet();
            return member.got.stream().map(delivery -> delivery.key + " " + delivery.times).sorted().collect(Collectors.toList());
        });
        for (int i = 0; i < 3; i++) {
            String way = ways[i];
            int seconds = Delaying.SECONDS[way.equals("level 1") ? 1 : 3];
            steps.step(way, () -> withoutOffset(member.of(way).get(1)));
            steps.step(way + ", delay", () ->
                Delaying.lateness(seconds, member.of(way).get(0).at, member.of(way).get(1)));
        }
        steps.step("dead letter", () -> crew.deadLetter("ways", ways[3]));
        member.stop();
    }

    /** The retry topic appears with the first heartbeat, after the client has looked for its route. */
    private void brandNew(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("brandnew");
        crew.send(topic, 0, "m");
        Member member = crew.member("brandnew", "one").concurrently((delivery, context) -> delivery.times == 0
            ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        member.start(topic);
        steps.step("delivered", () -> {
            Crew.eventually(() -> member.got.size() >= 2);
            return member.got.stream().map(delivery -> delivery.key + " " + delivery.times).collect(Collectors.toList());
        });
        steps.step("topic of the retries", () -> crew.route(crew.retry("brandnew")));
        steps.step("committed of the retries", () -> crew.committed("brandnew", crew.retry("brandnew"), 1));
        member.stop();
    }

    /** Where in the retry topic it was: messages of one scenario do not always come in one order. */
    private static Map<String, Object> withoutOffset(Delivery delivery) {
        delivery.view.remove("offset");
        return delivery.view;
    }
}
