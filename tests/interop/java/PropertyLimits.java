import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** How many bytes of properties a message may carry, and who says no. */
final class PropertyLimits {
    private static final int LIMIT = Short.MAX_VALUE;

    private final Client client;
    private final Views views;

    PropertyLimits(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("property bytes", this::bytes);
        scenarios.put("property names", this::names);
    }

    private void bytes(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("properties");
        for (int length : new int[] {LIMIT - 200, LIMIT, LIMIT + 1, 2 * LIMIT + 2}) {
            steps.step("raw " + length, () -> views.answer(send(topic, length)));
            steps.step("raw batch record of " + length, () -> views.answer(send(
                320, topic, Bodies.batchRecord(Bodies.text(1), property(length)), "m", true)));
        }
        steps.step("longest accepted", () -> longest(topic, 'x', LIMIT - 1000, LIMIT + 1000));
        steps.step("longest accepted of two-byte letters", () -> longest(topic, '\u00e9', LIMIT / 2 - 500, LIMIT / 2 + 500));
        steps.step("client, 32000", () -> views.sent(client.producer.send(userProperty(topic, 32_000))).get("status"));
        steps.step("client, 32767", () -> views.sent(client.producer.send(userProperty(topic, LIMIT))));
        steps.step("client, 70000", () -> views.sent(client.producer.send(userProperty(topic, 70_000))));
        steps.step("lengths read back", () -> {
            Client.eventually(() -> lastLength(topic) == 32_000);
            return lastLength(topic);
        });
    }

    private int lastLength(String topic) throws Exception {
        List<MessageExt> messages = client.pullAll(topic, 0);
        return messages.get(messages.size() - 1).getProperty("p").length();
    }

    /** Most letters in one property that the broker takes, between one it does take and one it does not. */
    private int longest(String topic, char letter, int taken, int refused) throws Exception {
        while (taken + 1 < refused) {
            int middle = (taken + refused) / 2;
            String properties = "p\u0001" + Bodies.repeat(letter, middle) + "\u0002";
            if (send(310, topic, Bodies.text(1), "i", properties).getCode() == 0) {
                taken = middle;
            } else {
                refused = middle;
            }
        }
        return taken;
    }

    private RemotingCommand send(String topic, int length) throws Exception {
        return send(310, topic, Bodies.text(1), "i", property(length));
    }

    /** One after the other: 4.9.7 stores some of these broken, and does not dispatch what came soon behind them. */
    private RemotingCommand send(int code, String topic, byte[] body, Object... more) throws Exception {
        RemotingCommand answer = client.sendRaw(code, topic, body, more);
        client.dispatched();
        return answer;
    }

    private String property(int length) {
        return "p\u0001" + Bodies.repeat('x', length - 3) + "\u0002";
    }

    private Message userProperty(String topic, int length) {
        Message message = new Message(topic, Bodies.text(1));
        message.putUserProperty("p", Bodies.repeat('x', length));
        return message;
    }

    private void names(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("propertynames");
        for (String name : new String[] {"KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "", " "}) {
            steps.step("client refuses \"" + name + "\"", () -> {
                new Message(topic, Bodies.text(1)).putUserProperty(name, "v");
                return "accepted";
            });
        }
        steps.step("client refuses an empty value", () -> {
            new Message(topic, Bodies.text(1)).putUserProperty("name", "");
            return "accepted";
        });
        String[] texts = {
            "a\u0001\u0002b\u00012\u0002", "\u0001x\u0002", "\u0002\u0002", "no separator", "a\u00011\u0002a\u00012\u0002",
            "MSG_REGION\u0001mine\u0002TRACE_ON\u0001false\u0002CLUSTER\u0001mine\u0002",
            "WAIT\u0001true\u0002KEYS\u0001k\u0002", "WAIT\u0001false\u0002", "__RMQ.TRANSIENT.x\u00011\u0002b\u00012\u0002",
            "BORN_TIMESTAMP\u000112\u0002", "__BORNHOST\u00011.2.3.4\u0002", "INNER_NUM\u00015\u0002",
        };
        AtomicInteger stored = new AtomicInteger();
        for (String text : texts) {
            steps.step("raw " + readable(text), () -> {
                RemotingCommand response = client.sendRaw(310, topic, Bodies.text(1), "i", text);
                stored.addAndGet(response.getCode() == 0 ? 1 : 0);
                return views.answer(response);
            });
        }
        client.settle(topic, 0, stored.get());
        steps.step("stored", () -> views.messages(client.pullAll(topic, 0)));
    }

    private static String readable(String properties) {
        return properties.replace('\u0001', '=').replace('\u0002', ';');
    }
}
