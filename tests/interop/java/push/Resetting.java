import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Offsets of a group reset by an operator (222), while it consumes and while it does not. */
final class Resetting {
    private static final int RESET = 222;
    private static final Pattern OFFSET = Pattern.compile("\"queueId\":(\\d+),\"topic\":\"[^\"]*\"\\}:(\\d+)");

    private final Crew crew;

    Resetting(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("reset while consuming", this::whileConsuming);
        scenarios.put("reset, ordered consumer", this::ordered);
        scenarios.put("reset of a stopped group", this::stopped);
        scenarios.put("reset, raw", this::raw);
    }

    private void whileConsuming(Answers.Steps steps) throws Exception {
        String topic = filled("reset");
        Member member = crew.member("reset", "one").start(topic);
        backAndForth(steps, "reset", topic, member);
    }

    private void ordered(Answers.Steps steps) throws Exception {
        String topic = filled("resetordered");
        Member member = crew.member("resetordered", "one").orderly().start(topic);
        backAndForth(steps, "resetordered", topic, member);
    }

    private void backAndForth(Answers.Steps steps, String group, String topic, Member member) throws Exception {
        steps.step("delivered", () -> member.awaited(20).size());
        steps.step("committed", () -> crew.committed(group, topic, 10, 10));
        long middle = middle(topic);
        steps.step("back to the middle", () -> reset(topic, group, middle, "isForce", true));
        steps.step("delivered again", () -> {
            member.settled(30);
            return member.got.subList(20, member.got.size()).stream().map(Delivery::place).sorted().collect(Collectors.toList());
        });
        crew.send(topic, 0, "after");
        steps.step("delivered after that", () -> {
            Crew.eventually(() -> !member.of("after").isEmpty());
            crew.quiet();
            return member.got.size();
        });
        steps.step("committed in the end", () -> crew.committed(group, topic, 11, 10));
        member.stop();
    }

    private void stopped(Answers.Steps steps) throws Exception {
        String topic = filled("resetstopped");
        for (String group : new String[] {"resetback", "resetforth"}) {
            Member member = crew.member(group, "one").start(topic);
            member.awaited(20);
            member.stop();
            crew.committed(group, topic, 10, 10);
        }
        long middle = middle(topic);
        crew.fill(topic, 2, "missed", 4);
        steps.step("back to the middle", () -> reset(topic, "resetback", middle, "isForce", true));
        steps.step("forth to the end", () -> reset(topic, "resetforth", -1L, "isForce", true));
        Member back = crew.member("resetback", "two").start(topic);
        Member forth = crew.member("resetforth", "two").start(topic);
        steps.step("delivered after the way back", () -> {
            back.settled(14);
            return back.places();
        });
        Crew.eventually(() -> forth.queues(topic).size() == 2);
        Thread.sleep(2000); // the first pull is told of the reset
        crew.send(topic, 1, "after");
        steps.step("delivered after the way forth", () -> forth.awaited(1));
        back.stop();
        forth.stop();
    }

    private void raw(Answers.Steps steps) throws Exception {
        String topic = filled("resetraw");
        long middle = middle(topic);
        Member member = crew.member("resetraw", "one").start(topic);
        member.awaited(20);
        member.stop();
        crew.committed("resetraw", topic, 10, 10);
        steps.step("unknown topic", () -> reset(crew.client.topic("nowhere"), "resetraw", middle, "isForce", true));
        steps.step("unknown group", () -> reset(topic, "resetnobody", middle, "isForce", true));
        steps.step("without force, back", () -> reset(topic, "resetraw", middle, "isForce", false));
        steps.step("no time", () -> reset(topic, "resetraw", null, "isForce", true));
        steps.step("to time 0", () -> reset(topic, "resetraw", 0L, "isForce", true));
        steps.step("to the future", () -> reset(topic, "resetraw", System.currentTimeMillis() + 3_600_000, "isForce", true));
        steps.step("one queue", () -> reset(topic, "resetraw", middle, "isForce", true, "queueId", 1));
        steps.step("one queue to an offset", () -> reset(topic, "resetraw", middle, "isForce", true, "queueId", 1, "offset", 3));
        steps.step("one queue beyond its end", () -> reset(topic, "resetraw", middle, "isForce", true, "queueId", 1, "offset", 99));
        steps.step("unknown queue", () -> reset(topic, "resetraw", middle, "isForce", true, "queueId", 7, "offset", 3));
        steps.step("commit before the next pull", () -> crew.views.answer(crew.client.raw(
            15, "consumerGroup", crew.client.topic("resetraw"), "topic", topic, "queueId", 1, "commitOffset", 9)));
        steps.step("offsets in the end", () -> crew.committed("resetraw", topic, 10, 3));
    }

    /** Ten messages, a pause, ten more. */
    private String filled(String name) throws Exception {
        String topic = crew.client.createTopic(name, 2, 2, 6);
        crew.fill(topic, 2, "early", 10);
        Thread.sleep(500);
        crew.fill(topic, 2, "late", 10);
        return topic;
    }

    private long middle(String topic) throws Exception {
        crew.client.settle(topic, 0, 10);
        return crew.client.pullAll(topic, 0).get(5).getStoreTimestamp() - 200;
    }

    private Object reset(String topic, String group, Long time, Object... more) throws Exception {
        List<Object> fields = new ArrayList<>(Arrays.asList("topic", topic, "group", crew.client.topic(group)));
        if (time != null) {
            fields.addAll(Arrays.asList("timestamp", time));
        }
        fields.addAll(Arrays.asList(more));
        RemotingCommand answer = crew.client.raw(RESET, fields.toArray());
        Map<String, Object> view = crew.views.answerHead(answer);
        view.computeIfPresent("remark", (name, remark) -> ((String) remark).replaceAll("\\d{13}", "<time>"));
        if (answer.getBody() != null) {
            view.put("offsets", offsets(new String(answer.getBody(), StandardCharsets.UTF_8)));
        }
        return view;
    }

    private static Map<String, String> offsets(String body) {
        Map<String, String> offsets = new TreeMap<>();
        for (Matcher offset = OFFSET.matcher(body); offset.find();) {
            offsets.put("queue " + offset.group(1), offset.group(2));
        }
        return offsets;
    }
}
