import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The producers and the consumer that the scenarios share, and the few calls that differ between client versions. */
final class Client {
    static final String BROKER = "broker-a";
    static final String CLUSTER = "DefaultCluster";
    static final int MIB = 1 << 20;
    private static final long TIMEOUT_MS = 15_000;
    private static final long SETTLE_MS = 60_000;
    private static final Pattern BEHIND = Pattern.compile("\"dispatchBehindBytes\":\"(-?\\d+)\"");

    final String namesrv;
    final String brokerAddr;
    final String prefix;
    /** As the user gets it, but it does not try again: a retry would store a message twice. */
    final DefaultMQProducer producer;
    /** Neither limits nor compresses bodies: what is too large is for the broker to say. */
    final DefaultMQProducer bold;
    final DefaultMQPullConsumer consumer;
    private final List<Runnable> closing = new ArrayList<>();

    Client(String namesrv, String brokerAddr, String prefix) throws Exception {
        this.namesrv = namesrv;
        this.brokerAddr = brokerAddr;
        this.prefix = prefix;
        producer = producer("plain", 1);
        bold = producer("bold", 1);
        bold.setMaxMessageSize(64 * MIB);
        bold.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        consumer = new DefaultMQPullConsumer(prefix + "consumer", Credentials.hook());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer");
        consumer.setConsumerPullTimeoutMillis(TIMEOUT_MS);
        patient(consumer);
        consumer.start();
        closing.add(consumer::shutdown);
        eventually(() -> raw(namesrv, 105, null, "topic", "TBW102").getCode() == 0);
    }

    /** A started producer whose new topics get that many queues. */
    DefaultMQProducer producer(String name, int queues) throws Exception {
        DefaultMQProducer made = new DefaultMQProducer(prefix + "producer-" + name, Credentials.hook());
        made.setNamesrvAddr(namesrv);
        made.setInstanceName("producer-" + name);
        made.setSendMsgTimeout((int) TIMEOUT_MS);
        made.setRetryTimesWhenSendFailed(0);
        made.setRetryTimesWhenSendAsyncFailed(0);
        made.setDefaultTopicQueueNums(queues);
        patient(made);
        made.start();
        closing.add(made::shutdown);
        return made;
    }

    /** Newer clients can wait longer than three seconds for a busy machine. */
    static void patient(ClientConfig client) throws Exception {
        try {
            ClientConfig.class.getMethod("setMqClientApiTimeout", int.class).invoke(client, (int) TIMEOUT_MS);
        } catch (NoSuchMethodException older) {
            return;
        }
    }

    void onClose(Runnable action) {
        closing.add(action);
    }

    void close() {
        closing.forEach(Runnable::run);
    }

    String topic(String name) {
        return prefix + name;
    }

    MessageQueue queue(String topic, int id) {
        return new MessageQueue(topic, BROKER, id);
    }

    /** Makes a topic on the broker and waits until the name server knows it. */
    String createTopic(String name, int readQueues, int writeQueues, int perm) throws Exception {
        String topic = topic(name);
        api().createTopic(brokerAddr, "TBW102", new TopicConfig(topic, readQueues, writeQueues, perm), TIMEOUT_MS);
        eventually(() -> raw(namesrv, 105, null, "topic", topic).getCode() == 0);
        return topic;
    }

    String createTopic(String name) throws Exception {
        return createTopic(name, 1, 1, 6);
    }

    /** The user's own call, which has one parameter more since 5.0. */
    static void createTopic(DefaultMQProducer producer, String key, String topic, int queues) throws Exception {
        Class<?> type = DefaultMQProducer.class;
        try {
            Method method = type.getMethod("createTopic", String.class, String.class, int.class);
            invoke(method, producer, key, topic, queues);
        } catch (NoSuchMethodException since5) {
            Method method = type.getMethod("createTopic", String.class, String.class, int.class, Map.class);
            invoke(method, producer, key, topic, queues, new HashMap<String, String>());
        }
    }

    private static void invoke(Method method, Object target, Object... arguments) throws Exception {
        try {
            method.invoke(target, arguments);
        } catch (InvocationTargetException wrapped) {
            throw (Exception) wrapped.getCause();
        }
    }

    /** A request as it stands, past all checks of the client. */
    RemotingCommand raw(String address, int code, byte[] body, Object... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        HashMap<String, String> ext = new HashMap<>();
        for (int i = 0; i < fields.length; i += 2) {
            ext.put((String) fields[i], String.valueOf(fields[i + 1]));
        }
        request.setExtFields(ext);
        request.setBody(body);
        return api().getRemotingClient().invokeSync(address, request, TIMEOUT_MS);
    }

    RemotingCommand raw(int code, Object... fields) throws Exception {
        return raw(brokerAddr, code, null, fields);
    }

    private MQClientAPIImpl api() {
        return producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl();
    }

    /** Sends are answered before consume queue and index know the message: waits until the queue reaches `end`. */
    void settle(String topic, int queueId, long end) throws Exception {
        eventually(() -> consumer.maxOffset(queue(topic, queueId)) >= end);
    }

    /**
     * Waits until the broker has dispatched all that it stored. 4.9.7 says less than nothing behind a record that it
     * stored broken.
     */
    void dispatched() throws Exception {
        eventually(() -> {
            Matcher behind = BEHIND.matcher(new String(raw(28).getBody(), StandardCharsets.UTF_8));
            return behind.find() && Long.parseLong(behind.group(1)) <= 0;
        });
    }

    /** The same for the index: waits until the key is found. */
    void settleKey(String topic, String key) throws Exception {
        eventually(() -> !producer.queryMessage(topic, key, 1, 0, Long.MAX_VALUE).getMessageList().isEmpty());
    }

    /** A plain send as SEND_MESSAGE_V2 has it; `more` overrides single letters. */
    RemotingCommand sendRaw(int code, String topic, byte[] body, Object... more) throws Exception {
        List<Object> fields = new ArrayList<>(Arrays.asList(
            "a", "g", "b", topic, "c", "TBW102", "d", 1, "e", 0, "f", 0, "g", System.currentTimeMillis(), "h", 0));
        fields.addAll(Arrays.asList(more));
        return raw(brokerAddr, code, body, fields.toArray());
    }

    /** A whole queue, by pulls of 32. */
    List<MessageExt> pullAll(String topic, int queueId) throws Exception {
        MessageQueue queue = queue(topic, queueId);
        List<MessageExt> messages = new ArrayList<>();
        long end = consumer.maxOffset(queue);
        for (long offset = consumer.minOffset(queue); offset < end;) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getMsgFoundList() != null) {
                messages.addAll(result.getMsgFoundList());
            }
            if (result.getNextBeginOffset() <= offset) {
                throw new IllegalStateException("no progress at " + offset + ": " + result);
            }
            offset = result.getNextBeginOffset();
        }
        return messages;
    }

    /** Asks until it is so, or the time is over; a call that fails is asked again. */
    static void eventually(Callable<Boolean> condition) throws Exception {
        eventually(condition, SETTLE_MS);
    }

    static void eventually(Callable<Boolean> condition, long millis) throws Exception {
        long deadline = System.currentTimeMillis() + millis;
        while (System.currentTimeMillis() < deadline && !holds(condition)) {
            Thread.sleep(20);
        }
    }

    private static boolean holds(Callable<Boolean> condition) {
        try {
            return condition.call();
        } catch (Exception notYet) {
            return false;
        }
    }
}
