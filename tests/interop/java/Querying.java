import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Finding a message by its id, by its unique key, by its keys, and within a time range. */
final class Querying {
    private static final long GAP_MS = 2500; // the index keeps seconds

    private final Client client;
    private final Views views;

    Querying(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("query by id", this::byId);
        scenarios.put("query by key", this::byKey);
        scenarios.put("query by key and time", this::byTime);
        scenarios.put("query, raw", this::raw);
    }

    private void byId(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("byid");
        SendResult sent = client.producer.send(new Message(topic, "tag", "byidkey", Bodies.text(10)));
        SendResult large = client.producer.send(new Message(topic, "tag", "byidlarge", Bodies.text(10_000)));
        client.settleKey(topic, "byidlarge");
        steps.step("offset id", () -> views.message(client.producer.viewMessage(topic, sent.getOffsetMsgId())));
        steps.step("unique key", () -> views.message(client.producer.viewMessage(topic, sent.getMsgId())));
        steps.step("offset id, compressed", () -> views.message(client.producer.viewMessage(topic, large.getOffsetMsgId())));
        steps.step("unique key, compressed", () -> views.message(client.producer.viewMessage(topic, large.getMsgId())));
        steps.step("same message", () -> {
            MessageExt found = client.producer.viewMessage(topic, sent.getOffsetMsgId());
            return found.getMsgId().equals(sent.getMsgId()) || found.getMsgId().equals(sent.getOffsetMsgId());
        });
        steps.step("unique key, other topic", () -> views.message(client.producer.viewMessage(
            client.createTopic("byidother"), sent.getMsgId())));
        steps.step("offset id beyond the end", () -> views.message(client.producer.viewMessage(
            topic, sent.getOffsetMsgId().substring(0, 16) + "7FFFFFFFFFFFFF00")));
        steps.step("no id", () -> views.message(client.producer.viewMessage(topic, "nothing")));
    }

    private void byKey(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("bykey");
        for (int i = 0; i < 40; i++) {
            client.producer.send(new Message(topic, "tag", "all each" + i + " half" + i % 2, Bodies.text(i + 1)));
        }
        client.producer.send(new Message(topic, "tag", "a  b ", Bodies.text(100)));
        client.producer.send(new Message(topic, "tag", "Aa", Bodies.text(101)));
        client.producer.send(new Message(topic, "tag", "twice twice", Bodies.text(102)));
        client.settleKey(topic, "twice");
        for (int count : new int[] {1, 10, 32, 64, 100}) {
            steps.step("all, at most " + count, () -> query(topic, "all", count));
        }
        for (String key : new String[] {"each7", "half1", "none", "a", "b", "", "Aa", "BB", "all each7", "twice", "ALL"}) {
            steps.step("key \"" + key + "\"", () -> query(topic, key, 32));
        }
        steps.step("other topic", () -> query(client.createTopic("bykeyother"), "all", 32));
        steps.step("unknown topic", () -> query(client.topic("nowhere"), "all", 32));
    }

    private void byTime(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("bykeytime");
        client.producer.send(new Message(topic, "tag", "k", Bodies.text(1)));
        Thread.sleep(GAP_MS);
        client.producer.send(new Message(topic, "tag", "k", Bodies.text(2)));
        client.settle(topic, 0, 2);
        Client.eventually(() -> client.producer.queryMessage(topic, "k", 10, 0, Long.MAX_VALUE).getMessageList().size() == 2);
        List<MessageExt> messages = client.pullAll(topic, 0);
        long first = messages.get(0).getStoreTimestamp();
        long second = messages.get(1).getStoreTimestamp();
        long between = first + 700;
        query(steps, topic, "both", first - 5000, second + 5000);
        query(steps, topic, "the first", first - 5000, between);
        query(steps, topic, "the second", between, second + 5000);
        query(steps, topic, "before both", first - 100_000, first - 5000);
        query(steps, topic, "after both", second + 5000, second + 100_000);
        query(steps, topic, "turned round", second + 5000, first - 5000);
        query(steps, topic, "all time", 0, Long.MAX_VALUE);
    }

    private void query(Answers.Steps steps, String topic, String name, long begin, long end) {
        steps.step(name, () -> briefs(client.producer.queryMessage(topic, "k", 10, begin, end).getMessageList()));
    }

    private void raw(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("queryraw");
        SendResult sent = client.producer.send(new Message(topic, "tag", "qk", Bodies.text(10)));
        client.settleKey(topic, "qk");
        for (String type : new String[] {"K", "U", "T", "X", "absent"}) {
            for (String key : new String[] {"qk", "tag"}) {
                steps.step("index type " + type + ", " + key, () -> views.answerHead(
                    type.equals("absent") ? queryRaw(topic, key) : queryRaw(topic, key, "indexType", type)).get("code"));
            }
            steps.step("index type " + type + ", unique key", () -> views.answerHead(type.equals("absent")
                ? queryRaw(topic, sent.getMsgId()) : queryRaw(topic, sent.getMsgId(), "indexType", type)).get("code"));
        }
        steps.step("unique", () -> views.answerHead(queryRaw(topic, sent.getMsgId(), "_UNIQUE_KEY_QUERY", true)).get("code"));
        steps.step("none", () -> views.answer(queryRaw(topic, "nokey")));
        steps.step("at most 0", () -> views.answerHead(queryRaw(topic, "qk", "maxNum", 0)).get("code"));
        steps.step("at most -1", () -> views.answerHead(queryRaw(topic, "qk", "maxNum", -1)).get("code"));
        steps.step("view beyond the end", () -> views.answer(client.raw(33, "offset", 1L << 40)));
        steps.step("view -1", () -> views.answer(client.raw(33, "offset", -1)));
        steps.step("view without an offset", () -> views.answer(client.raw(33)));
    }

    private RemotingCommand queryRaw(String topic, String key, Object... more) throws Exception {
        List<Object> fields = new ArrayList<>(Arrays.asList(
            "topic", topic, "key", key, "maxNum", 10, "beginTimestamp", 0, "endTimestamp", Long.MAX_VALUE));
        fields.addAll(Arrays.asList(more));
        return client.raw(12, fields.toArray());
    }

    private List<String> query(String topic, String key, int count) throws Exception {
        return briefs(client.producer.queryMessage(topic, key, count, 0, Long.MAX_VALUE).getMessageList());
    }

    private List<String> briefs(List<MessageExt> messages) {
        List<String> briefs = new ArrayList<>();
        messages.forEach(message -> briefs.add(views.brief(message)));
        return briefs;
    }
}
