import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages with a time, sent by each way that a producer has, some of them recalled. Arguments: name servers, topic.
 * A line of the output is a step and what came of it, without anything that differs from run to run; the last ones
 * are the messages that were consumed, with the names of their properties, and whether one was early or came twice.
 */
public final class Timed {
    private static final long LAST_AFTER_MS = 4000;
    private static final long PATIENCE_MS = 30_000;
    private static final long QUIET_MS = 2500;
    private static final long NEAR_MS = 2000; // 5.5.0 names the second before
    private static final long TOO_FAR_S = 259_201;

    private final DefaultMQProducer producer;
    private final String topic;
    private final Map<String, Long> due = new ConcurrentHashMap<>();
    private final Map<String, String> ids = new ConcurrentHashMap<>();
    private final Map<String, String> handles = new ConcurrentHashMap<>();
    private final Map<String, MessageExt> came = new ConcurrentHashMap<>();
    private final Map<String, String> faults = new ConcurrentHashMap<>();

    private Timed(DefaultMQProducer producer, String topic) {
        this.producer = producer;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(arguments[1] + "-producers");
        producer.setNamesrvAddr(arguments[0]);
        producer.setSendMsgTimeout(15_000);
        producer.setMqClientApiTimeout(15_000);
        producer.start();
        new Timed(producer, arguments[1]).run(arguments[0]);
        System.exit(0);
    }

    private void run(String namesrv) throws Exception {
        consume(namesrv);
        send();
        recall();
        TreeSet<String> expected = new TreeSet<>(Arrays.asList("ms", "sec", "at", "past", "zero", "level", "async"));
        await(expected);
        step("recall what came", () -> recall(topic, "ms"));
        came.forEach((name, message) -> System.out.println("came " + name + " " + names(message)));
        faults.forEach((name, fault) -> System.out.println("fault " + name + " " + fault));
    }

    private void send() throws Exception {
        step("ms", () -> sent("ms", in(1700), message -> message.setDelayTimeMs(1700)));
        step("sec", () -> sent("sec", in(2000), message -> message.setDelayTimeSec(2)));
        long at = in(LAST_AFTER_MS);
        step("at", () -> sent("at", at, message -> message.setDeliverTimeMs(at)));
        step("past", () -> sent("past", in(0), message -> message.setDeliverTimeMs(at - 3_600_000)));
        step("zero", () -> sent("zero", in(0), message -> message.setDelayTimeSec(0)));
        step("level", () -> sent("level", in(1000), message -> {
            message.setDelayTimeLevel(1);
            message.setDelayTimeSec(3000);
        }));
        step("async", this::async);
        step("too far", () -> sent("too far", in(0), message -> message.setDelayTimeSec(TOO_FAR_S)));
        step("recalled", () -> sent("recalled", in(3000), message -> message.setDelayTimeMs(3000)));
        step("recalled at", () -> sent("recalled at", at, message -> message.setDeliverTimeMs(at)));
    }

    private void recall() throws Exception {
        step("recall", () -> recall(topic, "recalled"));
        step("recall again", () -> recall(topic, "recalled"));
        step("recall the other", () -> recall(topic, "recalled at"));
        step("recall by no handle", () -> producer.recallMessage(topic, "zzz"));
        step("recall of another topic", () -> recall("TBW102", "recalled"));
        handles.put("unknown", handle("ms", "unknown"));
        ids.put("unknown", "unknown");
        step("recall what never was", () -> recall(topic, "unknown"));
    }

    private interface Wish {
        void of(Message message);
    }

    private static long in(long delayMs) {
        return System.currentTimeMillis() + delayMs;
    }

    private Message message(String name, long dueMs, Wish wish) {
        Message message = new Message(topic, "tag", name, name.getBytes(StandardCharsets.UTF_8));
        due.put(name, dueMs);
        wish.of(message);
        return message;
    }

    private String sent(String name, long dueMs, Wish wish) throws Exception {
        return view(name, producer.send(message(name, dueMs, wish)));
    }

    private String async() throws Exception {
        CompletableFuture<SendResult> done = new CompletableFuture<>();
        producer.send(message("async", in(1000), message -> message.setDelayTimeMs(1000)), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                done.complete(result);
            }

            @Override
            public void onException(Throwable failure) {
                done.completeExceptionally(failure);
            }
        });
        return view("async", done.get(PATIENCE_MS, TimeUnit.MILLISECONDS));
    }

    private String view(String name, SendResult result) {
        ids.put(name, result.getMsgId());
        String handle = result.getRecallHandle();
        if (handle == null) {
            return result.getSendStatus() + ", no handle";
        }
        handles.put(name, handle);
        String[] words = words(handle);
        boolean isIts = words[1].equals(topic) && words[4].equals(result.getMsgId());
        boolean isNear = Math.abs(Long.parseLong(words[3]) - due.get(name)) < NEAR_MS;
        return result.getSendStatus() + ", " + words[0] + " of " + words[2] + ", its own: " + isIts + ", its time: " + isNear;
    }

    private String recall(String of, String name) throws Exception {
        return "its id: " + producer.recallMessage(of, handles.get(name)).equals(ids.get(name));
    }

    private String handle(String like, String key) {
        String[] words = words(handles.get(like));
        words[3] = String.valueOf(in(60_000));
        words[4] = key;
        return Base64.getUrlEncoder().encodeToString(String.join(" ", words).getBytes(StandardCharsets.UTF_8));
    }

    private static String[] words(String handle) {
        return new String(Base64.getUrlDecoder().decode(handle), StandardCharsets.UTF_8).split(" ");
    }

    private static void step(String name, Callable<String> action) throws Exception {
        String answer;
        try {
            answer = action.call();
        } catch (MQBrokerException refused) {
            answer = "broker: " + refused.getResponseCode() + " " + refused.getErrorMessage();
        } catch (MQClientException refused) {
            answer = "client: " + refused.getResponseCode() + " " + refused.getErrorMessage();
        }
        System.out.println("step " + name + ": " + answer);
    }

    private void consume(String namesrv) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(topic + "-consumers");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::note);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private void note(MessageExt message) {
        String name = message.getKeys();
        if (message.getStoreTimestamp() < due.get(name)) {
            faults.put(name, "was early");
        }
        if (came.put(name, message) != null) {
            faults.put(name, "came twice");
        }
    }

    private void await(TreeSet<String> expected) throws InterruptedException {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!came.keySet().containsAll(expected) && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        Thread.sleep(QUIET_MS);
    }

    private static String names(MessageExt message) {
        return new TreeMap<>(message.getProperties()).keySet().toString();
    }
}
