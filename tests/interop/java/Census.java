import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every message of the two topics, pulled queue by queue, then asked for again by its id and by each of its keys. */
final class Census {
    private final Client client;
    private final Map<String, Object> messages = new TreeMap<>();
    private final Map<String, Set<String>> placesByKey = new TreeMap<>();
    private final List<String> notFoundById = new ArrayList<>();
    private final List<String> notFoundByKey = new ArrayList<>();

    Census(Client client) {
        this.client = client;
    }

    void write(String file) throws Exception {
        Client.eventually(() -> client.raw(client.namesrv, 105, null, "topic", Store.MANY).getCode() == 0);
        Map<String, Object> queues = new LinkedHashMap<>();
        for (int id = 0; id < Store.MANY_QUEUES; id++) {
            queues.put(Store.MANY + "/" + id, queue(Store.MANY, id));
        }
        queues.put(Store.ONE + "/0", queue(Store.ONE, 0));
        for (Map.Entry<String, Set<String>> key : placesByKey.entrySet()) {
            lookUpKey(key.getKey(), key.getValue());
        }
        StringBuilder out = new StringBuilder();
        Json.write(out, Answers.fields("queues", queues, "messages", messages, "notFoundById", notFoundById,
            "notFoundByKey", notFoundByKey, "committed", client.consumer.fetchConsumeOffset(client.queue(Store.ONE, 0), true)));
        Files.write(Paths.get(file), out.toString().getBytes(StandardCharsets.UTF_8));
    }

    private Object queue(String topic, int id) throws Exception {
        MessageQueue queue = client.queue(topic, id);
        for (MessageExt message : client.pullAll(topic, id)) {
            String place = place(message);
            messages.put(place, view(message));
            lookUpId(message);
            for (String key : message.getKeys().split(" ")) {
                placesByKey.computeIfAbsent(topic + " " + key, name -> new TreeSet<>()).add(place);
            }
        }
        long min = client.consumer.minOffset(queue);
        Map<String, Object> view = Answers.fields("min", min, "max", client.consumer.maxOffset(queue));
        if (min > 0) {
            PullResult below = client.consumer.pull(queue, "*", 0, 1);
            view.put("pull from 0", below.getPullStatus() + ", next " + below.getNextBeginOffset());
        }
        return view;
    }

    private void lookUpId(MessageExt message) throws Exception {
        String id = ((MessageClientExt) message).getOffsetMsgId();
        try {
            MessageExt found = client.producer.viewMessage(message.getTopic(), id);
            if (view(found).equals(view(message))) {
                return;
            }
        } catch (MQClientException none) {
            // reported below
        }
        notFoundById.add(place(message));
    }

    /** A key shared by many is not asked for: the broker stops at 64. */
    private void lookUpKey(String topicAndKey, Set<String> places) throws Exception {
        String[] parts = topicAndKey.split(" ");
        if (places.size() > 32) {
            return;
        }
        Set<String> found = new TreeSet<>();
        try {
            client.producer.queryMessage(parts[0], parts[1], 64, 0, Long.MAX_VALUE).getMessageList()
                .forEach(message -> found.add(place(message)));
        } catch (MQClientException none) {
            // reported below
        }
        for (String place : places) {
            if (!found.contains(place)) {
                notFoundByKey.add(parts[1] + " " + place);
            }
        }
    }

    private static String place(MessageExt message) {
        return String.format("%s/%d/%06d", message.getTopic(), message.getQueueId(), message.getQueueOffset());
    }

    private static Map<String, Object> view(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove("MIN_OFFSET"); // the client's own
        properties.remove("MAX_OFFSET");
        return Answers.fields(
            "body", Views.body(message.getBody()),
            "properties", properties,
            "flag", message.getFlag(),
            "sysFlag", message.getSysFlag(),
            "bornTimestamp", message.getBornTimestamp(),
            "bornHost", message.getBornHost().toString(),
            "storeTimestamp", message.getStoreTimestamp(),
            "storeHost", message.getStoreHost().toString(),
            "commitLogOffset", message.getCommitLogOffset(),
            "storeSize", message.getStoreSize(),
            "bodyCrc", message.getBodyCRC(),
            "reconsumeTimes", message.getReconsumeTimes());
    }
}
