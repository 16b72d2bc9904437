import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageExt;

/** A message as the listener got it, kept as it was then: the client changes the object when it comes again. */
final class Delivery {
    final String topic;
    final int queue;
    final long offset;
    final String key;
    final int times;
    final long at = System.currentTimeMillis();
    final long storedAt;
    final Map<String, Object> view;

    Delivery(MessageExt message, Crew crew) {
        topic = message.getTopic();
        queue = message.getQueueId();
        offset = message.getQueueOffset();
        key = message.getKeys();
        times = message.getReconsumeTimes();
        storedAt = message.getStoreTimestamp();
        view = crew.view(message);
    }

    /** `2/7 the-key`, queue and offset first. */
    String place() {
        return queue + "/" + offset + " " + key;
    }

    static final class Properties {
        private static final String[] CHANGING = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"};

        private Properties() {
        }

        /** Times and the bounds of a queue at the moment of the pull: other ones in each run. */
        static Map<String, String> stable(Map<String, String> properties) {
            Map<String, String> stable = new TreeMap<>(properties);
            for (String name : CHANGING) {
                stable.computeIfPresent(name, (key, value) -> "<n>");
            }
            stable.replaceAll((name, value) -> value.matches("\\d{13}") ? "<time>" : value);
            return stable;
        }
    }
}
