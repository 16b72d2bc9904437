import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Where a new group begins: on a topic that has all its messages, on an empty one, and on one whose beginning is gone.
 * That last one, `old`, was made before this program began.
 */
final class FirstOffsets {
    private static final ConsumeFromWhere[] WHERES = {
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
    };

    private final Crew crew;

    FirstOffsets(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("first offset, whole topic", this::whole);
        scenarios.put("first offset, empty topic", this::empty);
        scenarios.put("first offset, beginning gone", this::old);
    }

    private void whole(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("whole");
        crew.fill(topic, 1, "early", 3);
        Thread.sleep(2500); // start times have whole seconds
        crew.fill(topic, 1, "late", 3);
        crew.client.settle(topic, 0, 6);
        consume(steps, "whole", topic, between(crew.client.pullAll(topic, 0).get(3)));
    }

    private void empty(Answers.Steps steps) throws Exception {
        consume(steps, "empty", crew.client.createTopic("empty"), System.currentTimeMillis() - 60_000);
    }

    private void old(Answers.Steps steps) throws Exception {
        String topic = crew.client.topic("old");
        steps.step("bounds", () -> crew.client.consumer.minOffset(crew.client.queue(topic, 0)) + " to "
            + crew.client.consumer.maxOffset(crew.client.queue(topic, 0)));
        List<MessageExt> messages = crew.client.pullAll(topic, 0);
        consume(steps, "old", topic, between(messages.get(messages.size() / 2)));
    }

    /** A whole second between a message and the pause before it. */
    private static long between(MessageExt afterThePause) {
        return (afterThePause.getStoreTimestamp() - 1000) / 1000 * 1000;
    }

    private void consume(Answers.Steps steps, String name, String topic, long time) throws Exception {
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < WHERES.length; i++) {
            Member member = crew.member(name + i, "one");
            member.consumer.setConsumeFromWhere(WHERES[i]);
            member.consumer.setConsumeTimestamp(new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(time)));
            members.add(member.start(topic));
        }
        for (Member member : members) {
            Crew.eventually(() -> member.queues(topic).size() == 1);
        }
        crew.send(topic, 0, "after");
        for (int i = 0; i < WHERES.length; i++) {
            Member member = members.get(i);
            String where = WHERES[i].name().toLowerCase();
            steps.step(where, () -> {
                Crew.eventually(() -> !member.of("after").isEmpty());
                crew.quiet();
                return member.places();
            });
            member.stop();
        }
    }
}
