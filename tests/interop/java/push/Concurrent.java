import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.common.message.Message;

/** The ordinary consumer, with and without tags. */
final class Concurrent {
    private final Crew crew;

    Concurrent(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("concurrent", this::concurrent);
        scenarios.put("concurrent, by tag", this::byTag);
        scenarios.put("concurrent, part of a batch", this::partOfBatch);
    }

    private void concurrent(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("concurrent", 4, 4, 6);
        crew.fill(topic, 4, "early", 40);
        Member member = crew.member("concurrent", "one").start(topic);
        steps.step("delivered", () -> member.awaited(40));
        steps.step("as the listener saw it", () -> member.of("early0").get(0).view);
        crew.fill(topic, 4, "late", 8);
        steps.step("delivered later", () -> member.awaited(48).size());
        member.stop();
        steps.step("committed", () -> crew.committed("concurrent", topic, 12, 12, 12, 12));
        crew.fill(topic, 2, "absent", 4);
        Member again = crew.member("concurrent", "two").start(topic);
        steps.step("delivered to the next one", () -> again.awaited(4));
        again.stop();
    }

    private void byTag(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("bytag", 1, 1, 6);
        String[] tags = {"A", "B", "C", null, "Aa", "BB", "A"};
        for (int i = 0; i < tags.length; i++) {
            crew.send(topic, 0, tags[i], "k" + i);
        }
        String[] expressions = {"A", "A || B", "Aa", "A || Z ||C", "Z"};
        int[] counts = {2, 3, 1, 3, 0};
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < expressions.length; i++) {
            members.add(crew.member("bytag" + i, "one").start(topic, expressions[i]));
        }
        for (int i = 0; i < expressions.length; i++) {
            int which = i;
            steps.step(expressions[i], () -> members.get(which).awaited(counts[which]));
            steps.step(expressions[i] + ", committed", () -> crew.committed("bytag" + which, topic, tags.length));
            members.get(i).stop();
        }
    }

    private void partOfBatch(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("batch");
        crew.createRetryTopic("batch");
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            batch.add(crew.message(topic, null, "b" + i));
        }
        crew.client.producer.send(batch);
        Member member = crew.member("batch", "one");
        member.consumer.setConsumeMessageBatchMaxSize(10);
        member.concurrently((delivery, context) -> {
            context.setAckIndex(delivery.times == 0 ? 1 : Integer.MAX_VALUE);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        member.start(topic);
        steps.step("first time", () -> {
            Crew.eventually(() -> member.got.size() >= 6);
            return keysOf(member, 0);
        });
        steps.step("those not acknowledged come again", () -> {
            Crew.eventually(() -> member.got.stream().filter(delivery -> delivery.times == 1).count() >= 4);
            return keysOf(member, 1);
        });
        steps.step("committed", () -> crew.committed("batch", topic, 6));
        member.stop();
    }

    private static List<String> keysOf(Member member, int times) {
        List<String> keys = new ArrayList<>();
        member.got.stream().filter(delivery -> delivery.times == times).map(delivery -> delivery.key).sorted().forEach(keys::add);
        return keys;
    }
}
