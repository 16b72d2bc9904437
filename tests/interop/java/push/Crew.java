import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What every scenario of push consumers needs: sends, members of groups, and looks at what the broker keeps. */
final class Crew {
    /** A consumer that comes too late for one round of balancing waits 20 s for the next, and 30 s for a route. */
    static final long PATIENT_MS = 75_000;
    /** Anything delivered twice would show. */
    private static final long QUIET_MS = 500;

    final Client client;
    final Answers answers;
    final Views views;

    Crew(Client client, Answers answers) {
        this.client = client;
        this.answers = answers;
        views = new Views(answers, client.brokerAddr);
    }

    Member member(String group, String name) {
        return new Member(this, group, name);
    }

    /** Key and body say which message it is. */
    Message message(String topic, String tag, String key) {
        return new Message(topic, tag, key, Bodies.utf8(key));
    }

    SendResult send(String topic, int queue, String key) throws Exception {
        return send(topic, queue, null, key);
    }

    SendResult send(String topic, int queue, String tag, String key) throws Exception {
        return client.producer.send(message(topic, tag, key), client.queue(topic, queue));
    }

    /** `count` messages a0, a1, … over the queues in turn; these show them when it returns. */
    void fill(String topic, int queues, String name, int count) throws Exception {
        Map<Integer, Long> ends = new TreeMap<>();
        for (int i = 0; i < count; i++) {
            ends.put(i % queues, send(topic, i % queues, name + i).getQueueOffset() + 1);
        }
        for (Map.Entry<Integer, Long> end : ends.entrySet()) {
            client.settle(topic, end.getKey(), end.getValue());
        }
    }

    /**
     * The retry topic of a group, so that its first member knows the route: otherwise the first redelivery waits for
     * a timer of the client.
     */
    void createRetryTopic(String group) throws Exception {
        updateTopic(retry(group), 1, 1, false);
    }

    String retry(String group) {
        return "%RETRY%" + client.topic(group);
    }

    String deadLetters(String group) {
        return "%DLQ%" + client.topic(group);
    }

    /** As `mqadmin updateTopic` asks it; waits until the name server knows. */
    void updateTopic(String topic, int readQueues, int writeQueues, boolean order) throws Exception {
        client.raw(17, "topic", topic, "defaultTopic", "TBW102", "readQueueNums", readQueues, "writeQueueNums", writeQueues,
            "perm", 6, "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", order);
        Client.eventually(() -> route(topic).equals(
            "readQueueNums " + readQueues + ", writeQueueNums " + writeQueues + ", perm 6"));
    }

    static boolean eventually(Callable<Boolean> condition) throws Exception {
        Client.eventually(condition, PATIENT_MS);
        return condition.call();
    }

    void quiet() throws InterruptedException {
        Thread.sleep(QUIET_MS);
    }

    /** The offsets that the broker keeps for the group, once they are as expected. */
    Map<String, Object> committed(String group, String topic, long... expected) throws Exception {
        Client.eventually(() -> {
            for (int queue = 0; queue < expected.length; queue++) {
                if (!String.valueOf(expected[queue]).equals(offset(group, topic, queue))) {
                    return false;
                }
            }
            return true;
        }, 20_000);
        Map<String, Object> offsets = new TreeMap<>();
        for (int queue = 0; queue < expected.length; queue++) {
            offsets.put("queue " + queue, offset(group, topic, queue));
        }
        return offsets;
    }

    String offset(String group, String topic, int queue) throws Exception {
        RemotingCommand answer = client.raw(14, "consumerGroup", client.topic(group), "topic", topic, "queueId", queue);
        return answer.getCode() == 0 ? answer.getExtFields().get("offset") : "code " + answer.getCode();
    }

    Map<String, Object> view(MessageExt message) {
        Map<String, Object> view = views.message(message);
        view.put("properties", Delivery.Properties.stable(answers.clean(message.getProperties())));
        return view;
    }

    /** The dead letters of a group with that key, once there is one. */
    List<Map<String, Object>> deadLetter(String group, String key) throws Exception {
        eventually(() -> !stored(deadLetters(group), 0, key).isEmpty());
        return stored(deadLetters(group), 0, key);
    }

    /** All messages of a queue with that key; their place in a topic that scenarios share is left out. */
    List<Map<String, Object>> stored(String topic, int queue, String key) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (MessageExt message : client.pullAll(topic, queue)) {
            if (key.equals(message.getKeys())) {
                Map<String, Object> view = view(message);
                view.remove("offset");
                found.add(view);
            }
        }
        return found;
    }

    /** What the name server says of a topic: queues and permission. */
    String route(String topic) throws Exception {
        RemotingCommand answer = client.raw(client.namesrv, 105, null, "topic", topic);
        if (answer.getCode() != 0) {
            return "code " + answer.getCode();
        }
        String body = new String(answer.getBody(), "UTF-8");
        List<String> facts = new ArrayList<>();
        for (String name : new String[] {"readQueueNums", "writeQueueNums", "perm"}) {
            facts.add(name + " " + body.replaceFirst("(?s).*\"" + name + "\":(\\d+).*", "$1"));
        }
        return String.join(", ", facts);
    }

    /** A queue as JSON bodies name it. */
    String json(MessageQueue queue) {
        return String.format("{\"brokerName\":\"%s\",\"queueId\":%d,\"topic\":\"%s\"}",
            queue.getBrokerName(), queue.getQueueId(), queue.getTopic());
    }
}
