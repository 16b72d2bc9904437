import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The four pull statuses from every side, tag filters, sizes of answers, and waiting for a message. */
final class Pulling {
    private final Client client;
    private final Views views;

    Pulling(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("pull, statuses", this::statuses);
        scenarios.put("pull, tags", this::tags);
        scenarios.put("pull, how much at once", this::amounts);
        scenarios.put("pull, waiting", this::waiting);
        scenarios.put("pull, raw", this::raw);
    }

    private void statuses(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("statuses", 2, 2, 6);
        MessageQueue queue = client.queue(topic, 0);
        MessageQueue empty = client.queue(topic, 1);
        for (long offset : new long[] {0, 1, 5, Long.MAX_VALUE}) {
            steps.step("empty queue, offset " + offset, () -> pull(empty, "*", offset));
        }
        for (int i = 0; i < 5; i++) {
            client.producer.send(new Message(topic, "tag" + i, Bodies.text(i + 1)), queue);
        }
        client.settle(topic, 0, 5);
        for (long offset : new long[] {-1, 0, 3, 4, 5, 6, 1000, Long.MAX_VALUE}) {
            steps.step("five messages, offset " + offset, () -> pull(queue, "*", offset));
        }
        steps.step("no match", () -> pull(queue, "other", 0));
        steps.step("no match from 3", () -> pull(queue, "other", 3));
        steps.step("no match from the end", () -> pull(queue, "other", 5));
        steps.step("queue 2", () -> pull(client.queue(topic, 2), "*", 0));
        steps.step("queue -1", () -> pull(client.queue(topic, -1), "*", 0));
        steps.step("unknown topic", () -> pull(client.queue(client.topic("nowhere"), 0), "*", 0));
        steps.step("unknown broker", () -> pull(new MessageQueue(topic, "broker-z", 0), "*", 0));
    }

    private void tags(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("tags");
        MessageQueue queue = client.queue(topic, 0);
        String[] tags = {"A", "B", null, "A", "Aa", "BB", " C ", "polygenelubricants"};
        for (int i = 0; i < tags.length; i++) {
            client.producer.send(new Message(topic, tags[i], Bodies.text(i + 1)), queue);
        }
        client.settle(topic, 0, tags.length);
        String[] expressions = {
            "*", "", null, "A", "B", "A||B", "A || B", "||", "A||", "C", " C ", "a", "Aa", "BB", "Aa || BB", "polygenelubricants", "A B",
        };
        for (String expression : expressions) {
            steps.step("subscription " + (expression == null ? "null" : "'" + expression + "'"), () -> pull(queue, expression, 0));
        }
        steps.step("A from 1", () -> pull(queue, "A", 1));
        steps.step("A from 4", () -> pull(queue, "A", 4));
    }

    private void amounts(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("amounts", 3, 3, 6);
        fill(topic, 0, 70, 10);
        fill(topic, 1, 6, 100_000);
        fill(topic, 2, 3, 300_000);
        for (int count : new int[] {-1, 0, 1, 2, 31, 32, 33, 64, 1000}) {
            steps.step(count + " of many small", () -> count(pullResult(client.queue(topic, 0), "*", 0, count)));
        }
        steps.step("32 of 100 kB", () -> count(pullResult(client.queue(topic, 1), "*", 0, 32)));
        steps.step("32 of 300 kB", () -> count(pullResult(client.queue(topic, 2), "*", 0, 32)));
        steps.step("32 near the end", () -> count(pullResult(client.queue(topic, 0), "*", 60, 32)));
        sparse(steps);
    }

    /** One message in a thousand matches: how far does one pull look? */
    private void sparse(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("sparse");
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            batch.add(new Message(topic, i == 999 ? "rare" : "common", Bodies.text(1)));
        }
        client.producer.send(batch);
        client.settle(topic, 0, 1000);
        for (int count : new int[] {1, 32}) {
            steps.step("rare, " + count + " wanted", () -> count(pullResult(client.queue(topic, 0), "rare", 0, count)));
        }
        steps.step("rare, from 500", () -> count(pullResult(client.queue(topic, 0), "rare", 500, 32)));
    }

    private void fill(String topic, int queueId, int count, int size) throws Exception {
        for (int i = 0; i < count; i++) {
            client.bold.send(new Message(topic, Bodies.noise(size)), client.queue(topic, queueId));
        }
        client.settle(topic, queueId, count);
    }

    private void waiting(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("waiting", 2, 2, 6);
        steps.step("woken by a message", () -> {
            CompletableFuture<PullResult> waiting = pullInBackground(client.queue(topic, 0), "*");
            Thread.sleep(700);
            boolean early = waiting.isDone();
            client.producer.send(new Message(topic, "A", Bodies.text(1)), client.queue(topic, 0));
            PullResult result = waiting.get(15, TimeUnit.SECONDS);
            return Answers.fields("early", early, "result", views.pulled(result));
        });
        steps.step("waiting for a tag", () -> {
            CompletableFuture<PullResult> waiting = pullInBackground(client.queue(topic, 1), "wanted");
            Thread.sleep(700);
            client.producer.send(new Message(topic, "other", Bodies.text(1)), client.queue(topic, 1));
            Thread.sleep(300);
            client.producer.send(new Message(topic, "wanted", Bodies.text(2)), client.queue(topic, 1));
            return views.pulled(waiting.get(15, TimeUnit.SECONDS));
        });
    }

    /** Apache looks at waiting pulls every five seconds, and then wakes them for any tag: so it pulls until it found. */
    private CompletableFuture<PullResult> pullInBackground(MessageQueue queue, String expression) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                PullResult result = client.consumer.pullBlockIfNotFound(queue, expression, 0, 10);
                while (result.getPullStatus() != PullStatus.FOUND) {
                    result = client.consumer.pullBlockIfNotFound(queue, expression, result.getNextBeginOffset(), 10);
                }
                return result;
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        });
    }

    private void raw(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("pullraw", 2, 2, 6);
        for (int i = 0; i < 5; i++) {
            client.producer.send(new Message(topic, "tag" + i, Bodies.text(i + 1)), client.queue(topic, 0));
        }
        client.settle(topic, 0, 5);
        for (long offset : new long[] {-1, -1000, 0, 5, 6}) {
            steps.step("offset " + offset, () -> views.answerHead(pullRaw(topic, "queueOffset", offset)));
        }
        steps.step("empty queue, offset -1", () -> views.answerHead(pullRaw(topic, "queueId", 1, "queueOffset", -1)));
        steps.step("empty queue, offset 1", () -> views.answerHead(pullRaw(topic, "queueId", 1, "queueOffset", 1)));
        steps.step("queue 2", () -> views.answerHead(pullRaw(topic, "queueId", 2)));
        steps.step("unknown topic", () -> views.answerHead(pullRaw(client.topic("nowhere"))));
        steps.step("no heartbeat, no subscription", () -> views.answerHead(pullRaw(topic, "sysFlag", 0)));
        steps.step("bad SQL", () -> views.answerHead(pullRaw(topic, "subscription", "a >", "expressionType", "SQL92")));
        steps.step("at most 0", () -> views.answerHead(pullRaw(topic, "maxMsgNums", 0)));
        steps.step("at most -1", () -> views.answerHead(pullRaw(topic, "maxMsgNums", -1)));
        steps.step("no subscription text", () -> views.answerHead(pullRaw(topic, "subscription", "")));
        steps.step("unknown expression type", () -> views.answerHead(pullRaw(topic, "expressionType", "OTHER")));
        steps.step("without a queue", () -> views.answerHead(client.raw(11, "consumerGroup", client.topic("raw"), "topic", topic)));
        steps.step("number that is none", () -> views.answerHead(pullRaw(topic, "queueOffset", "zero")));
        steps.step("lite pull code", () -> views.answerHead(client.raw(361, pullFields(topic).toArray())));
        steps.step("held for a second", () -> {
            long begun = System.currentTimeMillis();
            RemotingCommand answer = pullRaw(topic, "queueOffset", 5, "sysFlag", 6, "suspendTimeoutMillis", 1000);
            long took = System.currentTimeMillis() - begun;
            return Answers.fields("atLeastASecond", took >= 900, "answer", views.answerHead(answer));
        });
    }

    private RemotingCommand pullRaw(String topic, Object... changed) throws Exception {
        List<Object> fields = pullFields(topic);
        fields.addAll(Arrays.asList(changed));
        return client.raw(11, fields.toArray());
    }

    private List<Object> pullFields(String topic) {
        return new ArrayList<>(Arrays.asList(
            "consumerGroup", client.topic("raw"), "topic", topic, "queueId", 0, "queueOffset", 0, "maxMsgNums", 10, "sysFlag", 4,
            "commitOffset", 0, "suspendTimeoutMillis", 0, "subscription", "*", "subVersion", 0));
    }

    private Object pull(MessageQueue queue, String expression, long offset) throws Exception {
        return views.pulled(pullResult(queue, expression, offset, 32));
    }

    private PullResult pullResult(MessageQueue queue, String expression, long offset, int count) throws Exception {
        return client.consumer.pull(queue, expression, offset, count);
    }

    private Object count(PullResult result) {
        int found = result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size();
        return Answers.fields("status", result.getPullStatus(), "next", result.getNextBeginOffset(), "max", result.getMaxOffset(),
            "count", found);
    }
}
