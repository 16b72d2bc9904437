import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Requests to send a message back, as they stand. */
final class SendingBack {
    private static final int SEND_BACK = 36;
    private static final int UPDATE_GROUP = 200;

    private final Crew crew;

    SendingBack(Crew crew) {
        this.crew = crew;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("send back, raw", this::raw);
        scenarios.put("send back, group settings", this::settings);
    }

    private void raw(Answers.Steps steps) throws Exception {
        long offset = stored("back", "m");
        steps.step("unknown group", () -> back(offset, "backnone", 0));
        group("back", 1, 16);
        steps.step("level 0", () -> back(offset, "back", 0));
        steps.step("level 1", () -> back(offset, "back", 1));
        steps.step("level 99", () -> back(offset, "back", 99));
        steps.step("level -1", () -> back(offset, "back", -1));
        steps.step("at most 0 times", () -> back(offset, "back", 0, "maxReconsumeTimes", 0));
        steps.step("offset inside a record", () -> back(offset + 1, "back", 0));
        steps.step("offset beyond the end", () -> back(offset + (1L << 40), "back", 0));
        steps.step("offset -1", () -> back(-1, "back", 0));
        steps.step("no group", () -> crew.views.answer(crew.client.raw(SEND_BACK, "offset", offset, "delayLevel", 0)));
        steps.step("no offset", () -> crew.views.answer(crew.client.raw(
            SEND_BACK, "group", crew.client.topic("back"), "delayLevel", 0)));
        steps.step("topic of the retries", () -> crew.route(crew.retry("back")));
        steps.step("retries", () -> {
            Client.eventually(() -> crew.stored(crew.retry("back"), 0, "m").size() >= 3, 20_000);
            List<Map<String, Object>> retries = crew.stored(crew.retry("back"), 0, "m");
            retries.sort(Comparator.comparing(view -> (String) ((Map<?, ?>) view.get("properties")).get("DELAY")));
            return retries;
        });
        steps.step("dead letters", () -> crew.stored(crew.deadLetters("back"), 0, "m"));
        steps.step("topic of the dead letters", () -> crew.route(crew.deadLetters("back")));
    }

    @SuppressWarnings("unchecked")
    private void settings(Answers.Steps steps) throws Exception {
        long offset = stored("backs", "m");
        steps.step("three retry queues, once at most", () -> group("backs", 3, 1));
        steps.step("sent back", () -> back(offset, "backs", 1));
        steps.step("topic of the retries", () -> {
            Client.eventually(() -> !crew.route(crew.retry("backs")).startsWith("code"));
            return crew.route(crew.retry("backs"));
        });
        steps.step("the retry sent back", () -> {
            Client.eventually(() -> retried("backs", 3) != null, 20_000);
            return back(retried("backs", 3).getCommitLogOffset(), "backs", 1);
        });
        steps.step("dead letters", () -> {
            Map<String, Object> letter = crew.deadLetter("backs", "m").get(0);
            ((Map<String, String>) letter.get("properties")).put("REAL_QID", "<any of three>");
            return letter;
        });
        steps.step("no retry queues", () -> group("backs", 0, 16));
        steps.step("sent back, no retry queues", () -> back(offset, "backs", 1));
        steps.step("at most 0 times", () -> group("backs0", 1, 0));
        steps.step("sent back, at most 0 times", () -> back(offset, "backs0", 1));
        steps.step("dead letters, at most 0 times", () -> crew.deadLetter("backs0", "m"));
    }

    private MessageExt retried(String group, int queues) throws Exception {
        for (int queue = 0; queue < queues; queue++) {
            for (MessageExt message : crew.client.pullAll(crew.retry(group), queue)) {
                return message;
            }
        }
        return null;
    }

    /** The commit log offset of a new message. */
    private long stored(String name, String key) throws Exception {
        String topic = crew.client.createTopic(name);
        crew.send(topic, 0, "tag", key);
        crew.client.settle(topic, 0, 1);
        return crew.client.pullAll(topic, 0).get(0).getCommitLogOffset();
    }

    private Object back(long offset, String group, int level, Object... more) throws Exception {
        List<Object> fields = new ArrayList<>(Arrays.asList("offset", offset, "group", crew.client.topic(group),
            "delayLevel", level, "originTopic", crew.client.topic("origin"), "originMsgId", "origin"));
        fields.addAll(Arrays.asList(more));
        Map<String, Object> view = crew.views.answer(crew.client.raw(SEND_BACK, fields.toArray()));
        view.computeIfPresent("remark", (name, remark) -> ((String) remark).replaceAll("\\d{2,}", "<n>"));
        return view;
    }

    private Object group(String group, int retryQueues, int maxTimes) throws Exception {
        String body = String.format("{\"groupName\":\"%s\",\"consumeEnable\":true,\"consumeFromMinEnable\":true,"
            + "\"consumeBroadcastEnable\":true,\"retryQueueNums\":%d,\"retryMaxTimes\":%d,\"brokerId\":0,"
            + "\"whichBrokerWhenConsumeSlowly\":1,\"notifyConsumerIdsChangedEnable\":true}",
            crew.client.topic(group), retryQueues, maxTimes);
        RemotingCommand answer = crew.client.raw(
            crew.client.brokerAddr, UPDATE_GROUP, body.getBytes(StandardCharsets.UTF_8));
        return crew.views.answer(answer);
    }
}
