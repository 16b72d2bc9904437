import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Producers and consumers that live while somebody else looks at them; each group has one member. */
final class Scene {
    private static final String CLIENT_IP = "10.0.0.1"; // part of client ids, which are shown
    private static final long CALL_MS = 15_000;
    private static final long WAIT_MS = 40_000; // a consumer that comes too late for one rebalance waits 20 s for the next
    private static final String FAILING = "fail"; // a message with these words is refused by every listener, each time
    private static final String LATER = "later"; // one with these only the first time

    private final String namesrv;
    private final DefaultMQProducer producer;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private final Map<String, List<String>> taken = new HashMap<>();

    Scene(String namesrv) throws Exception {
        this.namesrv = namesrv;
        producer = new DefaultMQProducer("scene", Credentials.hook());
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("scene");
        producer.setClientIP(CLIENT_IP);
        producer.setSendMsgTimeout((int) CALL_MS);
        Client.patient(producer);
        producer.start();
    }

    /** The verbs: see each method. */
    Object act(String verb, String[] words) throws Exception {
        switch (verb) {
            case "route": return route(words[0]);
            case "perm": return perm(words[0], Integer.parseInt(words[1]));
            case "send": return send(words[0], Integer.parseInt(words[1]), words[2], words[3], words[4]);
            case "traced": return traced(words[0], words[1]);
            case "delayed": return delayed(words[0], words[1], Integer.parseInt(words[2]));
            case "push": return push(words[0], words[1], words[2], words[3], Integer.parseInt(words[4]));
            case "took": return took(words[0], Integer.parseInt(words[1]));
            case "committed": return committed(words[0], words[1], words[2], Integer.parseInt(words[3]), words[4]);
            case "stop": return stop(words[0]);
            case "ends": return ends(words[0], words[1], Integer.parseInt(words[2]), words[3]);
            case "indexed": return indexed(words[0], words[1]);
            case "heartbeat": return heartbeat();
            default: throw new IllegalArgumentException(verb);
        }
    }

    /** Waits until the name server knows the topic. */
    private Object route(String topic) throws Exception {
        await(() -> raw(namesrv, 105, "topic", topic).getCode() == 0, "route of " + topic);
        return true;
    }

    /** Waits until the name server has heard of a topic's permission. */
    private Object perm(String topic, int perm) throws Exception {
        await(() -> new String(raw(namesrv, 105, "topic", topic).getBody(), StandardCharsets.UTF_8).contains("\"perm\":" + perm),
            "perm " + perm + " of " + topic);
        return true;
    }

    /** One message to one queue: its two ids. */
    Map<String, Object> send(String topic, int queue, String tags, String keys, String body) throws Exception {
        Message message = new Message(topic, tags, keys, body.getBytes(StandardCharsets.UTF_8));
        return ids(producer.send(message, new MessageQueue(topic, Client.BROKER, queue)));
    }

    Map<String, Object> delayed(String topic, String body, int level) throws Exception {
        Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(level);
        return ids(producer.send(message));
    }

    /** The trace follows a message within seconds, in a message of its own. */
    private String traced(String topic, String body) throws Exception {
        DefaultMQProducer tracing = new DefaultMQProducer("tracing", Credentials.hook(), true, null);
        tracing.setNamesrvAddr(namesrv);
        tracing.setInstanceName("tracing");
        tracing.setClientIP(CLIENT_IP);
        tracing.setSendMsgTimeout((int) CALL_MS);
        Client.patient(tracing);
        tracing.start();
        try {
            String id = tracing.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8))).getMsgId();
            indexed("RMQ_SYS_TRACE_TOPIC", id); // a client that is shut down at once may leave its trace unsent
            return id;
        } finally {
            tracing.shutdown();
        }
    }

    private static Map<String, Object> ids(SendResult result) {
        return Answers.fields("id", result.getMsgId(), "offsetId", result.getOffsetMsgId());
    }

    /** A new member of a group: its client id. `kind` is concurrently, orderly or broadcasting. */
    String push(String group, String topic, String expression, String kind, int maxRetries) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            group, Credentials.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setClientIP(CLIENT_IP);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(maxRetries);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, expression);
        List<String> bodies = new CopyOnWriteArrayList<>();
        if (kind.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> take(bodies, messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> take(bodies, messages)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        boolean broadcasting = kind.equals("broadcasting");
        if (broadcasting) {
            broadcast(consumer);
        }
        Client.patient(consumer);
        consumer.start();
        consumers.put(group, consumer);
        taken.put(group, bodies);
        if (!broadcasting) {
            takeRetries(consumer, "%RETRY%" + group);
        }
        return consumer.buildMQClientId();
    }

    /** The first heartbeat makes the retry topic; a new member would learn of it after half a minute. */
    private void takeRetries(DefaultMQPushConsumer consumer, String topic) throws Exception {
        route(topic);
        DefaultMQPushConsumerImpl inner = consumer.getDefaultMQPushConsumerImpl();
        inner.getmQClientFactory().updateTopicRouteInfoFromNameServer(topic);
        inner.getmQClientFactory().rebalanceImmediately();
        await(() -> inner.getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .anyMatch(queue -> queue.getTopic().equals(topic)), "queue of " + topic);
    }

    private static boolean take(List<String> bodies, List<MessageExt> messages) {
        boolean done = true;
        for (MessageExt message : messages) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            bodies.add(body);
            done &= !body.startsWith(FAILING) && !(body.startsWith(LATER) && message.getReconsumeTimes() == 0);
        }
        return done;
    }

    /** The type of the message model moved to another package in 5.0. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, Enum.valueOf((Class<Enum>) method.getParameterTypes()[0], "BROADCASTING"));
            }
        }
    }

    /** What the group's member took, once that is so much. */
    List<String> took(String group, int count) throws Exception {
        List<String> bodies = taken.get(group);
        await(() -> bodies.size() >= count, "message " + count + " of " + group);
        List<String> sorted = new ArrayList<>(bodies);
        Collections.sort(sorted);
        return sorted;
    }

    /** Lets the member commit now, and waits until the broker has that offset. */
    boolean committed(String brokerAddr, String group, String topic, int queue, String offset) throws Exception {
        DefaultMQPushConsumer consumer = consumers.get(group);
        await(() -> {
            if (consumer != null) {
                consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            }
            Map<String, String> ext = raw(brokerAddr, 14, "consumerGroup", group, "topic", topic, "queueId", queue).getExtFields();
            return ext != null && offset.equals(ext.get("offset"));
        }, group + " at " + offset + " of " + topic + "/" + queue);
        return true;
    }

    boolean stop(String group) {
        consumers.remove(group).shutdown();
        return true;
    }

    /** Waits until a queue has so many messages. */
    boolean ends(String brokerAddr, String topic, int queue, String offset) throws Exception {
        await(() -> {
            Map<String, String> ext = raw(brokerAddr, 30, "topic", topic, "queueId", queue).getExtFields();
            return ext != null && offset.equals(ext.get("offset"));
        }, topic + "/" + queue + " ending at " + offset);
        return true;
    }

    private boolean indexed(String topic, String key) throws Exception {
        await(() -> !producer.queryMessage(topic, key, 1, 0, Long.MAX_VALUE).getMessageList().isEmpty(), "key " + key);
        return true;
    }

    /** Registers the producer with the brokers that it knows by now, which otherwise takes up to half a minute. */
    private boolean heartbeat() {
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
        return true;
    }

    private RemotingCommand raw(String address, int code, Object... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        HashMap<String, String> ext = new HashMap<>();
        for (int i = 0; i < fields.length; i += 2) {
            ext.put((String) fields[i], String.valueOf(fields[i + 1]));
        }
        request.setExtFields(ext);
        return producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl().getRemotingClient()
            .invokeSync(address, request, CALL_MS);
    }

    private static void await(Callable<Boolean> condition, String what) throws Exception {
        boolean[] held = {false};
        Client.eventually(() -> held[0] = condition.call(), WAIT_MS);
        if (!held[0]) {
            throw new IllegalStateException("waited in vain for " + what);
        }
    }
}
