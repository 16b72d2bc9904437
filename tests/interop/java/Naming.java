import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Names that are reserved, and names that are no names. */
final class Naming {
    private static final String[] RESERVED = {
        "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest",
        Client.CLUSTER, Client.BROKER, Client.CLUSTER + "_REPLY_TOPIC", "CHECKPOINT_TOPIC",
    };

    private final Client client;
    private final Views views;

    Naming(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("reserved topics", this::reserved);
        scenarios.put("illegal topics", this::illegal);
        scenarios.put("long topics", this::lengths);
        scenarios.put("retry and dead-letter topics", this::retry);
        scenarios.put("illegal groups", this::groups);
    }

    private void reserved(Answers.Steps steps) {
        for (String topic : RESERVED) {
            steps.step("send " + topic, () -> status(views.sent(client.producer.send(message(topic)))));
            steps.step("raw send " + topic, () -> head(client.sendRaw(310, topic, Bodies.text(1))));
            steps.step("create " + topic, () -> create(topic));
        }
        String own = "rmq_sys_" + client.prefix;
        steps.step("send rmq_sys_", () -> status(views.sent(client.producer.send(message(own)))));
        steps.step("raw send rmq_sys_", () -> head(client.sendRaw(310, own, Bodies.text(1))));
        steps.step("create rmq_sys_", () -> create(own));
    }

    private void illegal(Answers.Steps steps) {
        Map<String, String> names = new LinkedHashMap<>();
        names.put("blank inside", client.topic("a b"));
        names.put("slash", client.topic("a/b"));
        names.put("dot", client.topic("a.b"));
        names.put("colon", client.topic("a:b"));
        names.put("at", client.topic("a@b"));
        names.put("hash", client.topic("a#b"));
        names.put("letter beyond ASCII", client.topic("\u4e2d"));
        names.put("parent directory", "../" + client.prefix);
        names.put("empty", "");
        names.put("blank", " ");
        names.put("legal: percent, bar, dash, underscore", client.topic("%|-_"));
        names.forEach((what, topic) -> {
            steps.step("send, " + what, () -> status(views.sent(client.producer.send(message(topic)))));
            steps.step("raw send, " + what, () -> head(client.sendRaw(310, topic, Bodies.text(1))));
            steps.step("create, " + what, () -> create(topic));
        });
    }

    private void lengths(Answers.Steps steps) {
        for (int length : new int[] {127, 128, 255, 256}) {
            String topic = client.topic(Bodies.repeat('t', length - client.prefix.length()));
            steps.step("send, " + length, () -> status(views.sent(client.producer.send(message(topic)))));
            steps.step("raw send, " + length, () -> head(client.sendRaw(310, topic, Bodies.text(1))));
            steps.step("create, " + length, () -> create(topic));
        }
    }

    private void retry(Answers.Steps steps) {
        for (String kind : new String[] {"%RETRY%", "%DLQ%"}) {
            String topic = kind + client.prefix + "nobody";
            steps.step("raw send " + kind, () -> head(client.sendRaw(310, topic, Bodies.text(1))));
            steps.step("queues of " + kind, () -> {
                Client.eventually(() -> client.raw(client.namesrv, 105, null, "topic", topic).getCode() == 0);
                return Views.queues(client.producer.fetchPublishMessageQueues(topic));
            });
            steps.step("create " + kind, () -> create(kind + client.prefix + "made"));
            String longest = kind + Bodies.repeat('g', 255 - kind.length());
            steps.step("raw send " + kind + " of 255", () -> head(client.sendRaw(310, longest, Bodies.text(1))));
        }
    }

    private void groups(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("groups", 2, 2, 6);
        for (String group : new String[] {"", "a b", "\u4e2d", Bodies.repeat('g', 120), Bodies.repeat('g', 121)}) {
            String name = group.length() > 10 ? group.length() + " letters" : "\"" + group + "\"";
            steps.step("pull as " + name, () -> views.answer(client.raw(11,
                "consumerGroup", group, "topic", topic, "queueId", 1, "queueOffset", 0, "maxMsgNums", 1,
                "sysFlag", 4, "commitOffset", 0, "suspendTimeoutMillis", 0, "subscription", "*", "subVersion", 0)));
            steps.step("send as " + name, () -> head(client.sendRaw(310, topic, Bodies.text(1), "a", group)));
        }
    }

    private Object create(String topic) throws Exception {
        return views.answer(client.raw(17, "topic", topic, "defaultTopic", "TBW102", "readQueueNums", 1,
            "writeQueueNums", 1, "perm", 6, "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false));
    }

    private Message message(String topic) {
        return new Message(topic, Bodies.text(1));
    }

    /** Other runs send to the reserved topics too: their offsets say nothing. */
    private Object status(Map<String, Object> sent) {
        return sent.get("status");
    }

    private Object head(RemotingCommand response) {
        return Answers.fields("code", response.getCode(), "remark", views.answer(response).get("remark"));
    }
}
