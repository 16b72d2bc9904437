import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;

/** Members of one group come and go while messages flow. */
final class Joining {
    private static final int QUEUES = 8;
    private static final long SOON_MS = 15_000; // the client looks by itself every 20 s: this is for being told

    private final Crew crew;

    Joining(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("joining and leaving", this::concurrent);
        scenarios.put("joining and leaving, ordered", this::ordered);
    }

    private void concurrent(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("joining", QUEUES, QUEUES, 6);
        crew.createRetryTopic("joining");
        Stream stream = new Stream(topic);
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            members.add(crew.member("joining", "m" + i));
        }
        members.get(0).start(topic);
        steps.step("one", () -> shares(topic, members.subList(0, 1)));
        members.get(1).start(topic);
        steps.step("two", () -> shares(topic, members.subList(0, 2)));
        for (Member member : members.subList(2, 5)) {
            member.start(topic);
        }
        steps.step("five", () -> shares(topic, members));
        members.get(1).stop();
        members.get(4).stop();
        List<Member> three = new ArrayList<>(members);
        three.removeAll(Arrays.asList(members.get(1), members.get(4)));
        steps.step("two leave", () -> shares(topic, three));
        members.get(2).stop();
        members.get(3).stop();
        steps.step("two more leave", () -> shares(topic, members.subList(0, 1)));
        int sent = stream.stop();
        steps.step("all consumed", () -> {
            Crew.eventually(() -> consumed(members).size() == sent);
            return consumed(members).size() == sent;
        });
        members.get(0).stop();
    }

    /** How soon a queue changes hands is the matter of the client, which keeps its lock for a while. */
    private void ordered(Answers.Steps steps) throws Exception {
        String topic = crew.client.createTopic("joiningordered", QUEUES, QUEUES, 6);
        crew.createRetryTopic("joiningordered");
        Stream stream = new Stream(topic);
        Member one = crew.member("joiningordered", "m0").orderly().start(topic);
        steps.step("one", () -> queues(topic, one));
        Member two = crew.member("joiningordered", "m1").orderly().start(topic);
        steps.step("two", () -> queues(topic, one, two));
        two.stop();
        steps.step("one leaves", () -> queues(topic, one));
        int sent = stream.stop();
        List<Member> members = Arrays.asList(one, two);
        steps.step("all consumed", () -> {
            Crew.eventually(() -> consumed(members).size() == sent);
            return consumed(members).size() == sent;
        });
        steps.step("order kept", () -> disorder(members));
        one.stop();
    }

    private Map<String, Object> queues(String topic, Member... members) throws Exception {
        Map<String, Object> shares = shares(topic, Arrays.asList(members));
        shares.remove("soon");
        return shares;
    }

    /** Which member has which queues, once every queue has one owner and the shares are even. */
    private Map<String, Object> shares(String topic, List<Member> members) throws Exception {
        long begun = System.currentTimeMillis();
        Crew.eventually(() -> even(topic, members));
        Map<String, Object> shares = new TreeMap<>();
        shares.put("soon", System.currentTimeMillis() - begun < SOON_MS);
        for (int i = 0; i < members.size(); i++) {
            shares.put("member " + i, members.get(i).queues(topic));
        }
        return shares;
    }

    private static boolean even(String topic, List<Member> members) {
        List<Integer> all = new ArrayList<>();
        for (Member member : members) {
            List<Integer> queues = member.queues(topic);
            if (queues.size() < QUEUES / members.size() || queues.size() > (QUEUES + members.size() - 1) / members.size()) {
                return false;
            }
            all.addAll(queues);
        }
        return all.size() == QUEUES && new TreeSet<>(all).size() == QUEUES;
    }

    private static Set<String> consumed(List<Member> members) {
        return members.stream().flatMap(member -> member.got.stream()).map(delivery -> delivery.key).collect(Collectors.toSet());
    }

    /** Messages that came for the first time after a later one of their queue. */
    private static List<String> disorder(List<Member> members) {
        List<Delivery> all = members.stream().flatMap(member -> member.got.stream())
            .sorted((a, b) -> Long.compare(a.at, b.at)).collect(Collectors.toList());
        Map<Integer, Long> last = new HashMap<>();
        Set<String> seen = new TreeSet<>();
        List<String> disorder = new ArrayList<>();
        for (Delivery delivery : all) {
            if (seen.add(delivery.place()) && last.merge(delivery.queue, delivery.offset, Math::max) != delivery.offset) {
                disorder.add(delivery.place());
            }
        }
        return disorder;
    }

    /** A steady stream of messages, to all queues in turn. */
    private final class Stream {
        private final AtomicBoolean stopped = new AtomicBoolean();
        private final Thread thread;
        private int sent;

        Stream(String topic) {
            thread = new Thread(() -> {
                try {
                    for (; !stopped.get(); sent++) {
                        crew.send(topic, sent % QUEUES, "m" + sent);
                        Thread.sleep(40);
                    }
                } catch (Exception failed) {
                    failed.printStackTrace();
                }
            });
            thread.start();
        }

        int stop() throws InterruptedException {
            stopped.set(true);
            thread.join();
            return sent;
        }
    }
}
