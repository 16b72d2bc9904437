import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Ordered consumers: one at a time per queue, by a lock that the broker keeps. */
final class Ordered {
    private static final int LOCK = 41;
    private static final int UNLOCK = 42;

    private final Crew crew;

    Ordered(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("ordered", this::ordered);
        scenarios.put("ordered, suspended", this::suspended);
        scenarios.put("ordered, to dead letters", this::deadLetters);
        scenarios.put("locks, raw", this::locks);
    }

    private void ordered(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("ordered", 4, 4, 6);
        crew.fill(topic, 4, "m", 40);
        Member member = crew.member("ordered", "one").orderly().start(topic);
        steps.step("delivered", () -> {
            member.awaited(40);
            return member.keysByQueue();
        });
        steps.step("as the listener saw it", () -> member.of("m0").get(0).view);
        steps.step("another asks for the locks", () -> lock(LOCK, "ordered", "stranger", topic, 0, 1, 2, 3));
        member.stop();
        steps.step("committed", () -> crew.committed("ordered", topic, 10, 10, 10, 10));
        steps.step("another asks again", () -> lock(LOCK, "ordered", "stranger", topic, 0, 1, 2, 3));
    }

    private void suspended(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("suspended", 2, 2, 6);
        crew.fill(topic, 2, "m", 10);
        Member member = crew.member("suspended", "one").orderly(delivery -> delivery.key.equals("m4") && delivery.times < 3
            ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS);
        member.consumer.setSuspendCurrentQueueTimeMillis(300);
        member.start(topic);
        steps.step("delivered", () -> {
            member.awaited(13);
            return member.keysByQueue();
        });
        steps.step("counts", () -> member.of("m4").stream().map(delivery -> delivery.times).collect(Collectors.toList()));
        member.stop();
        steps.step("committed", () -> crew.committed("suspended", topic, 5, 5));
    }

    private void deadLetters(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("poison");
        crew.createRetryTopic("poison");
        crew.fill(topic, 1, "m", 5);
        Member member = crew.member("poison", "one").orderly(delivery -> delivery.key.equals("m2")
            ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS);
        member.consumer.setMaxReconsumeTimes(2);
        member.consumer.setSuspendCurrentQueueTimeMillis(300);
        member.start(topic);
        steps.step("delivered", () -> {
            Crew.eventually(() -> !member.of("m4").isEmpty());
            crew.quiet();
            return member.got.stream().map(delivery -> delivery.key + " " + delivery.times).collect(Collectors.toList());
        });
        steps.step("dead letter", () -> crew.deadLetter("poison", "m2"));
        steps.step("retry topic", () -> crew.stored(crew.retry("poison"), 0, "m2"));
        member.stop();
        steps.step("committed", () -> crew.committed("poison", topic, 5));
    }

    private void locks(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("locks", 2, 2, 6);
        steps.step("first comes", () -> lock(LOCK, "locks", "one", topic, 0, 1));
        steps.step("first again", () -> lock(LOCK, "locks", "one", topic, 0));
        steps.step("second comes", () -> lock(LOCK, "locks", "two", topic, 0, 1));
        steps.step("another group", () -> lock(LOCK, "locks2", "two", topic, 0, 1));
        steps.step("second unlocks", () -> lock(UNLOCK, "locks", "two", topic, 0));
        steps.step("second comes again", () -> lock(LOCK, "locks", "two", topic, 0, 1));
        steps.step("first unlocks one", () -> lock(UNLOCK, "locks", "one", topic, 0));
        steps.step("second gets that", () -> lock(LOCK, "locks", "two", topic, 0, 1));
        steps.step("unknown queue", () -> lock(LOCK, "locks", "one", topic, 77));
        steps.step("unknown topic", () -> lock(LOCK, "locks", "one", crew.client.topic("nowhere"), 0));
        steps.step("no queues", () -> lock(LOCK, "locks", "one", topic));
        steps.step("nothing to unlock", () -> lock(UNLOCK, "unlocks", "one", topic, 0));
        steps.step("not JSON", () -> crew.views.answer(crew.client.raw(crew.client.brokerAddr, LOCK, Bodies.utf8("{"))));
    }

    /** The answer, and the ids of the queues in it. */
    private Object lock(int code, String group, String member, String topic, int... queues) throws Exception {
        List<String> names = new ArrayList<>();
        for (int queue : queues) {
            names.add(crew.json(new MessageQueue(topic, Client.BROKER, queue)));
        }
        String body = String.format("{\"clientId\":\"%s\",\"consumerGroup\":\"%s\",\"mqSet\":[%s]}",
            member, crew.client.topic(group), String.join(",", names));
        RemotingCommand answer = crew.client.raw(crew.client.brokerAddr, code, body.getBytes(StandardCharsets.UTF_8));
        Map<String, Object> view = crew.views.answerHead(answer);
        if (answer.getBody() != null) {
            view.put("queues", queueIds(new String(answer.getBody(), StandardCharsets.UTF_8)));
        }
        return view;
    }

    private static List<String> queueIds(String body) {
        List<String> ids = new ArrayList<>();
        java.util.regex.Matcher id = java.util.regex.Pattern.compile("\"queueId\":(\\d+)").matcher(body);
        while (id.find()) {
            ids.add(id.group(1));
        }
        ids.sort(null);
        return ids;
    }
}
