import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way to send, with bodies on both sides of every limit. */
final class Sending {
    static final int[] SIZES = {0, 1, 4095, 4096, 4 * Client.MIB - 1, 4 * Client.MIB, 4 * Client.MIB + 1};

    private final Client client;
    private final Views views;

    Sending(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("send sync", this::sync);
        scenarios.put("send sync, no limit in the client", this::syncBold);
        scenarios.put("send async", this::async);
        scenarios.put("send oneway", this::oneway);
        scenarios.put("send by selector", this::selector);
        scenarios.put("send to a queue", this::toQueue);
        scenarios.put("send batch", this::batch);
        scenarios.put("send batch, raw", this::rawBatch);
        scenarios.put("send raw", this::raw);
        scenarios.put("send unicode", this::unicode);
    }

    private void sync(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("sync");
        for (int size : SIZES) {
            steps.step(size + " bytes", () -> views.sent(client.producer.send(message(topic, Bodies.text(size)))));
        }
        steps.step("null body", () -> views.sent(client.producer.send(new Message(topic, null))));
        steps.step("not waiting for the store", () -> {
            Message message = message(topic, Bodies.text(10));
            message.setWaitStoreMsgOK(false);
            message.setFlag(12345);
            return views.sent(client.producer.send(message));
        });
        stored(steps, topic, 6);
    }

    private void syncBold(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("bold");
        for (int size : SIZES) {
            steps.step(size + " bytes", () -> views.sent(client.bold.send(message(topic, Bodies.noise(size)))));
        }
        stored(steps, topic, 5);
    }

    private void async(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("async");
        for (int size : SIZES) {
            steps.step(size + " bytes", () -> views.sent(sendAsync(message(topic, Bodies.noise(size)))));
        }
        steps.step("to a queue that does not exist", () -> {
            Answer answer = new Answer();
            client.bold.send(message(topic, Bodies.text(1)), client.queue(topic, 1), answer);
            return views.sent(answer.get());
        });
        stored(steps, topic, 5);
    }

    private SendResult sendAsync(Message message) throws Throwable {
        Answer answer = new Answer();
        client.bold.send(message, answer);
        return answer.get();
    }

    /** Waits for what an asynchronous send has to say. */
    private static final class Answer implements SendCallback {
        private final CompletableFuture<SendResult> future = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult result) {
            future.complete(result);
        }

        @Override
        public void onException(Throwable failure) {
            future.completeExceptionally(failure);
        }

        SendResult get() throws Throwable {
            try {
                return future.get(20, TimeUnit.SECONDS);
            } catch (ExecutionException wrapped) {
                throw wrapped.getCause();
            }
        }
    }

    private void oneway(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("oneway");
        int stored = 0;
        for (int size : SIZES) {
            steps.step(size + " bytes", () -> {
                client.bold.sendOneway(message(topic, Bodies.noise(size)));
                return "returned";
            });
            if (size > 0 && size <= 4 * Client.MIB) {
                client.settle(topic, 0, ++stored); // one at a time: a pool of threads would store them in any order
            }
        }
        stored(steps, topic, stored);
    }

    private void selector(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("selector", 4, 4, 6);
        for (int size : SIZES) {
            steps.step(size + " bytes by key 6", () -> views.sent(client.bold.send(
                message(topic, Bodies.noise(size)), (queues, message, key) -> queues.get((Integer) key % queues.size()), 6)));
        }
        steps.step("a selector that finds none", () -> views.sent(client.producer.send(
            message(topic, Bodies.text(1)), (queues, message, key) -> null, 0)));
        steps.step("queue that does not exist", () -> views.sent(client.producer.send(
            message(topic, Bodies.text(1)), (queues, message, key) -> client.queue(topic, 4), 0)));
        client.settle(topic, 2, 5);
        steps.step("ends of the queues", () -> ends(topic, 4));
    }

    private void toQueue(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("queue", 4, 4, 6);
        for (int queue : new int[] {0, 3, 4, 1000}) {
            steps.step("queue " + queue, () -> views.sent(
                client.producer.send(message(topic, Bodies.text(1)), client.queue(topic, queue))));
        }
        for (int size : SIZES) {
            steps.step(size + " bytes to queue 1", () -> views.sent(
                client.bold.send(message(topic, Bodies.noise(size)), client.queue(topic, 1))));
        }
        steps.step("queue of another topic", () -> views.sent(
            client.producer.send(message(topic, Bodies.text(1)), client.queue(client.topic("other"), 0))));
        steps.step("queue of an unknown broker", () -> views.sent(
            client.producer.send(message(topic, Bodies.text(1)), new MessageQueue(topic, "broker-z", 0))));
        steps.step("eight in turn", () -> {
            Map<Integer, Integer> counts = new TreeMap<>();
            for (int i = 0; i < 8; i++) {
                SendResult result = client.producer.send(message(topic, Bodies.text(1)));
                counts.merge(result.getMessageQueue().getQueueId(), 1, Integer::sum);
            }
            return counts;
        });
    }

    private void batch(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("batch");
        for (int size : SIZES) {
            steps.step("one of " + size + " bytes", () -> views.sent(
                client.bold.send(Collections.singletonList(message(topic, Bodies.noise(size))))));
        }
        steps.step("three", () -> views.sent(client.producer.send(three(topic))));
        steps.step("none", () -> views.sent(client.producer.send(new ArrayList<>())));
        steps.step("two topics", () -> views.sent(client.producer.send(
            Arrays.asList(message(topic, Bodies.text(1)), message(topic + "x", Bodies.text(1))))));
        steps.step("delayed", () -> {
            Message message = message(topic, Bodies.text(1));
            message.setDelayTimeLevel(1);
            return views.sent(client.producer.send(Collections.singletonList(message)));
        });
        steps.step("to a retry topic", () -> views.sent(client.producer.send(
            Collections.singletonList(message("%RETRY%" + topic, Bodies.text(1))))));
        stored(steps, topic, 6);
    }

    private List<Message> three(String topic) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message message = new Message(topic, "tag" + i, "key" + i + " all", Bodies.text(100 + i));
            message.putUserProperty("index", "" + i);
            message.setFlag(i);
            messages.add(message);
        }
        return messages;
    }

    private void rawBatch(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("batchraw");
        int room = 4 * Client.MIB - 22;
        for (int size : new int[] {0, 1, room - 1, room, room + 1}) {
            steps.step("record of " + (size + 22) + " bytes", () -> views.answer(
                client.sendRaw(320, topic, Bodies.batchRecord(Bodies.noise(size), ""), "m", true)));
        }
        steps.step("empty", () -> views.answer(client.sendRaw(320, topic, new byte[0], "m", true)));
        byte[] record = Bodies.batchRecord(Bodies.text(10), "KEYS\u0001k\u0002");
        steps.step("plain code", () -> views.answer(client.sendRaw(310, topic, record, "m", true)));
        steps.step("batch code without the flag", () -> views.answer(client.sendRaw(320, topic, record)));
        steps.step("properties of the whole", () -> views.answer(
            client.sendRaw(320, topic, record, "m", true, "i", "outer\u0001yes\u0002")));
        steps.step("to a retry topic", () -> views.answer(client.sendRaw(320, "%RETRY%" + topic, record, "m", true)));
        stored(steps, topic, 4);
    }

    private void raw(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("raw", 4, 4, 6);
        steps.step("one byte", () -> views.answer(client.sendRaw(310, topic, Bodies.text(1))));
        steps.step("no body", () -> views.answer(client.sendRaw(310, topic, new byte[0])));
        steps.step("queue -1", () -> {
            String spread = client.createTopic("rawspread", 4, 4, 6);
            Map<String, Object> answer = views.answer(client.sendRaw(310, spread, Bodies.text(1), "e", -1));
            @SuppressWarnings("unchecked")
            Map<String, String> ext = (Map<String, String>) answer.get("ext");
            int queue = Integer.parseInt(ext.put("queueId", "any"));
            answer.put("queueInRange", queue >= 0 && queue < 4);
            return answer;
        });
        steps.step("queue 4", () -> views.answer(client.sendRaw(310, topic, Bodies.text(1), "e", 4)));
        steps.step("unique key", () -> views.answer(
            client.sendRaw(310, topic, Bodies.text(1), "e", 2, "i", "UNIQ_KEY\u0001AC11000100002A9F4B3C0C5A5D5A0000\u0002")));
        steps.step("properties without an end", () -> views.answer(
            client.sendRaw(310, topic, Bodies.text(1), "e", 2, "i", "a\u00011\u0002b\u00012")));
        steps.step("born long ago", () -> views.answer(client.sendRaw(310, topic, Bodies.text(1), "e", 2, "g", 1)));
        steps.step("long names", () -> views.answer(client.raw(client.brokerAddr, 10, Bodies.text(1),
            "producerGroup", "g", "topic", topic, "defaultTopic", "TBW102", "defaultTopicQueueNums", 1, "queueId", 1,
            "sysFlag", 0, "bornTimestamp", 1, "flag", 7, "properties", "KEYS\u0001k\u0002", "reconsumeTimes", 0)));
        steps.step("without its group", () -> views.answer(client.raw(client.brokerAddr, 310, Bodies.text(1),
            "b", topic, "c", "TBW102", "d", 1, "e", 0, "f", 0, "g", 1, "h", 0)));
        client.settle(topic, 1, 1);
        client.settle(topic, 2, 3);
        steps.step("stored 1", () -> views.messages(client.pullAll(topic, 1)));
        steps.step("stored 2", () -> views.messages(client.pullAll(topic, 2)));
    }

    private void unicode(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("unicode");
        String text = "\u4e2d\u6587 \u00e9 \ud83d\ude00";
        steps.step("send", () -> {
            Message message = new Message(topic, "\u6807\u7b7e", "\u952e1 k\u00e9y2", Bodies.utf8(text));
            message.putUserProperty("\u540d", text);
            message.putUserProperty("quote", "\"\\/{}[],:'");
            message.putUserProperty("control", "\u0000\u001f\u007f\u2028");
            message.putUserProperty("blanks", "  two  ");
            message.setBuyerId("\u4e70");
            return views.sent(client.producer.send(message));
        });
        steps.step("send batch", () -> {
            Message message = new Message(topic, "\u6807\u7b7e", "\u952e3", Bodies.utf8(text));
            message.putUserProperty("\u540d", text);
            return views.sent(client.producer.send(Collections.singletonList(message)));
        });
        stored(steps, topic, 2);
        steps.step("pull by tag", () -> views.pulled(client.consumer.pull(client.queue(topic, 0), "\u6807\u7b7e", 0, 10)));
        steps.step("pull by other tag", () -> views.pulled(client.consumer.pull(client.queue(topic, 0), "\u6807", 0, 10)));
        client.settleKey(topic, "\u952e3");
        for (String key : new String[] {"\u952e1", "k\u00e9y2", "\u952e3", "\u952e"}) {
            steps.step("query " + key, () -> {
                long now = System.currentTimeMillis();
                return views.messages(client.producer.queryMessage(topic, key, 10, 0, now + 60_000).getMessageList());
            });
        }
    }

    private Message message(String topic, byte[] body) {
        return new Message(topic, body);
    }

    /** What came out of queue 0 of a topic, whole. */
    private void stored(Answers.Steps steps, String topic, int count) throws Exception {
        client.settle(topic, 0, count);
        steps.step("stored", () -> views.messages(client.pullAll(topic, 0)));
    }

    private Map<Integer, Long> ends(String topic, int queues) throws Exception {
        Map<Integer, Long> ends = new TreeMap<>();
        for (int queue = 0; queue < queues; queue++) {
            ends.put(queue, client.consumer.maxOffset(client.queue(topic, queue)));
        }
        return ends;
    }
}
