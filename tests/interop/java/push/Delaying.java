import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;

/** Messages that are to come later, by delay level. */
final class Delaying {
    /** Seconds of each level from 1 on: the brokers of this suite are started with these. */
    static final int[] SECONDS = {0, 1, 2, 2, 4, 6, 8};
    private static final String SCHEDULE = "SCHEDULE_TOPIC_XXXX";
    private static final long LATE_MS = 3000; // two cores, and some of them busy

    private final Crew crew;

    Delaying(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("delay levels", this::levels);
        scenarios.put("delay levels, ordered consumer", this::ordered);
    }

    /** Stored for its readers never early, and not very late. */
    static String lateness(int seconds, long from, Delivery delivery) {
        long millis = delivery.storedAt - from;
        long late = millis - seconds * 1000L;
        return late < 0 ? millis + " ms, early" : late > LATE_MS ? millis + " ms, late" : "after " + seconds + " s";
    }

    private void levels(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("delay", 2, 2, 6);
        Member member = crew.member("delay", "one").start(topic);
        int[] levels = {0, 1, 2, 3, 4, 5, 6, 99};
        Map<Integer, Long> sent = new LinkedHashMap<>();
        for (int level : levels) {
            Message message = crew.message(topic, "tag", "level " + level);
            message.setDelayTimeLevel(level);
            sent.put(level, System.currentTimeMillis());
            steps.step("sent with level " + level, () ->
                crew.client.producer.send(message, crew.client.queue(topic, 1)).getSendStatus());
        }
        steps.step("while it waits", () -> {
            Client.eventually(() -> !waiting(topic).isEmpty());
            return waiting(topic);
        });
        Crew.eventually(() -> member.got.size() >= levels.length);
        for (int level : levels) {
            int seconds = SECONDS[Math.min(level, 6)];
            steps.step("level " + level, () ->
                lateness(seconds, sent.get(level), member.of("level " + level).get(0)));
        }
        steps.step("level 1, as the listener saw it", () -> member.of("level 1").get(0).view);
        steps.step("level 99, as the listener saw it", () -> {
            Map<String, Object> view = member.of("level 99").get(0).view;
            view.remove("offset"); // level 6 ends in the same moment
            return view;
        });
        steps.step("each once", () -> {
            crew.quiet();
            return member.got.size();
        });
        member.stop();
        steps.step("committed", () -> crew.committed("delay", topic, 0, 8));
    }

    /** Other clients have messages of the same key in this queue. */
    private List<Map<String, Object>> waiting(String topic) throws Exception {
        String real = crew.answers.clean(topic);
        List<Map<String, Object>> waiting = crew.stored(SCHEDULE, 5, "level 6");
        waiting.removeIf(view -> !real.equals(((Map<?, ?>) view.get("properties")).get("REAL_TOPIC")));
        return waiting;
    }

    private void ordered(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("delayordered");
        Member member = crew.member("delayordered", "one").orderly().start(topic);
        for (int i = 0; i < 10; i++) {
            Message message = crew.message(topic, null, "m" + i);
            message.setDelayTimeLevel(2);
            crew.client.producer.send(message);
        }
        steps.step("in the order of their sends", () -> {
            member.awaited(10);
            return member.keysByQueue();
        });
        member.stop();
    }
}
