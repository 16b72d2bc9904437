import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** How topics come to be, and what their queue counts and permissions mean. */
final class Topics {
    private final Client client;
    private final Views views;

    Topics(Client client, Views views) {
        this.client = client;
        this.views = views;
    }

    void addTo(Map<String, Scenarios.Scenario> scenarios) {
        scenarios.put("topic created by the client", this::created);
        scenarios.put("topic created by a send", this::autoCreated);
        scenarios.put("read and write queues differ", this::queuesDiffer);
        scenarios.put("topic permissions", this::permissions);
        scenarios.put("routes", this::routes);
        scenarios.put("create topic, raw", this::rawCreate);
    }

    private void created(Answers.Steps steps) {
        for (int queues : new int[] {1, 5, 16}) {
            String topic = client.topic("created" + queues);
            steps.step("create " + queues, () -> {
                Client.createTopic(client.producer, "TBW102", topic, queues);
                return "created";
            });
            steps.step("queues of " + queues, () -> bothSides(topic));
        }
        steps.step("create again with fewer", () -> {
            String topic = client.topic("created5");
            Client.createTopic(client.producer, "TBW102", topic, 2);
            Client.eventually(() -> client.producer.fetchPublishMessageQueues(topic).size() == 2);
            return bothSides(topic);
        });
        steps.step("by the cluster's name", () -> {
            String topic = client.topic("bycluster");
            Client.createTopic(client.producer, Client.CLUSTER, topic, 3);
            return bothSides(topic);
        });
        steps.step("by an unknown key", () -> {
            Client.createTopic(client.producer, client.topic("nokey"), client.topic("bynokey"), 3);
            return "created";
        });
        steps.step("illegal name", () -> {
            Client.createTopic(client.producer, "TBW102", client.topic("a b"), 1);
            return "created";
        });
        steps.step("no queues", () -> {
            Client.createTopic(client.producer, "TBW102", client.topic("zero"), 0);
            return bothSides(client.topic("zero"));
        });
    }

    private void autoCreated(Answers.Steps steps) throws Exception {
        for (int queues : new int[] {1, 4, 8, 9, 100}) {
            DefaultMQProducer producer = client.producer("auto" + queues, queues);
            String topic = client.topic("auto" + queues);
            steps.step("send, " + queues + " queues wanted", () ->
                views.sent(producer.send(new Message(topic, Bodies.text(1)))).get("status"));
            steps.step("queues of " + queues, () -> bothSides(topic));
        }
        steps.step("raw, no queue wanted", () -> views.answer(
            client.sendRaw(310, client.topic("auto0"), Bodies.text(1), "d", 0)));
        steps.step("raw, -1 wanted", () -> views.answer(
            client.sendRaw(310, client.topic("auto-1"), Bodies.text(1), "d", -1)));
        steps.step("raw, queue beyond those made", () -> views.answer(
            client.sendRaw(310, client.topic("auto2"), Bodies.text(1), "d", 2, "e", 2)));
        steps.step("raw, from an unknown topic", () -> views.answer(
            client.sendRaw(310, client.topic("none"), Bodies.text(1), "c", client.topic("nokey"))));
        steps.step("raw, from the cluster's topic", () -> views.answer(
            client.sendRaw(310, client.topic("fromcluster"), Bodies.text(1), "c", Client.CLUSTER, "d", 12)));
        steps.step("queues from the cluster's topic", () -> bothSides(client.topic("fromcluster")));
        steps.step("raw, from an ordinary topic", () -> views.answer(
            client.sendRaw(310, client.topic("fromauto"), Bodies.text(1), "c", client.topic("auto4"))));
        steps.step("raw, TBW102 itself", () -> bothSides("TBW102"));
    }

    private void queuesDiffer(Answers.Steps steps) throws Exception {
        differ(steps, "more to write", client.createTopic("r2w4", 2, 4, 6), 4);
        differ(steps, "more to read", client.createTopic("r4w2", 4, 2, 6), 4);
        differ(steps, "none to write", client.createTopic("r2w0", 2, 0, 6), 2);
        differ(steps, "none to read", client.createTopic("r0w2", 0, 2, 6), 2);
    }

    private void differ(Answers.Steps steps, String what, String topic, int queues) throws Exception {
        steps.step(what + ": queues", () -> bothSides(topic));
        List<Integer> stored = new ArrayList<>();
        for (int id = 0; id <= queues; id++) {
            MessageQueue queue = client.queue(topic, id);
            steps.step(what + ": send to " + id, () -> {
                SendResult result = client.producer.send(new Message(topic, Bodies.text(1)), queue);
                stored.add(queue.getQueueId());
                return views.sent(result);
            });
        }
        for (int id : stored) {
            client.settle(topic, id, 1);
        }
        for (int id = 0; id <= queues; id++) {
            MessageQueue queue = client.queue(topic, id);
            steps.step(what + ": pull from " + id, () -> views.pulled(client.consumer.pull(queue, "*", 0, 10)));
            steps.step(what + ": end of " + id, () -> client.consumer.maxOffset(queue));
        }
        steps.step(what + ": send", () -> views.sent(client.producer.send(new Message(topic, Bodies.text(1)))).get("status"));
    }

    private void permissions(Answers.Steps steps) throws Exception {
        for (int perm : new int[] {2, 4, 7, 0}) {
            String topic = client.createTopic("perm" + perm, 1, 1, perm);
            String what = "perm " + perm + ": ";
            MessageQueue queue = client.queue(topic, 0);
            steps.step(what + "queues", () -> bothSides(topic));
            steps.step(what + "send", () -> views.sent(client.producer.send(new Message(topic, Bodies.text(1)))));
            steps.step(what + "raw send", () -> views.answer(client.sendRaw(310, topic, Bodies.text(1))));
            steps.step(what + "pull", () -> {
                if (perm >= 4) { // it can be read; raw sends are stored whatever the permission is
                    client.settle(topic, 0, perm == 7 ? 2 : 1);
                }
                return views.pulled(client.consumer.pull(queue, "*", 0, 10));
            });
        }
    }

    private void routes(Answers.Steps steps) throws Exception {
        String topic = client.createTopic("routes", 2, 3, 6);
        steps.step("unknown topic", () -> views.answer(route(client.topic("nowhere"))));
        steps.step("unknown topic, publish queues", () ->
            Views.queues(client.producer.fetchPublishMessageQueues(client.topic("nowhere"))));
        steps.step("unknown topic, subscribe queues", () ->
            Views.queues(client.consumer.fetchSubscribeMessageQueues(client.topic("nowhere"))));
        steps.step("empty topic", () -> views.answer(route("")));
        steps.step("known topic", () -> bothSides(topic));
        for (String builtIn : new String[] {"TBW102", "SELF_TEST_TOPIC", Client.CLUSTER, Client.BROKER, "BenchmarkTest"}) {
            steps.step("counts of " + builtIn, () -> {
                Map<String, Set<Integer>> write = Views.queues(client.producer.fetchPublishMessageQueues(builtIn));
                return write.get(Client.BROKER).size();
            });
        }
    }

    private RemotingCommand route(String topic) throws Exception {
        return client.raw(client.namesrv, 105, null, "topic", topic);
    }

    private void rawCreate(Answers.Steps steps) {
        create(steps, "plain", "topic", client.topic("rc1"));
        create(steps, "again", "topic", client.topic("rc1"));
        create(steps, "perm 8", "topic", client.topic("rc2"), "perm", 8);
        create(steps, "perm -1", "topic", client.topic("rc3"), "perm", -1);
        create(steps, "negative queues", "topic", client.topic("rc4"), "readQueueNums", -1);
        create(steps, "unknown filter type", "topic", client.topic("rc5"), "topicFilterType", "OTHER");
        create(steps, "attribute", "topic", client.topic("rc6"), "attributes", "+message.type=NORMAL");
        create(steps, "unknown attribute", "topic", client.topic("rc7"), "attributes", "+color=red");
        create(steps, "order", "topic", client.topic("rc8"), "order", true);
        steps.step("without a topic", () -> views.answer(client.raw(17, "defaultTopic", "TBW102", "readQueueNums", 1,
            "writeQueueNums", 1, "perm", 6, "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false)));
    }

    private void create(Answers.Steps steps, String what, Object... changed) {
        List<Object> fields = new ArrayList<>(Arrays.asList(
            "defaultTopic", "TBW102", "readQueueNums", 1, "writeQueueNums", 1, "perm", 6,
            "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false));
        fields.addAll(Arrays.asList(changed));
        steps.step(what, () -> views.answer(client.raw(17, fields.toArray())));
    }

    /** What a producer and a consumer learn of a topic; a new topic needs a moment to reach the name server. */
    private Object bothSides(String topic) throws Exception {
        Client.eventually(() -> route(topic).getCode() == 0);
        return Answers.fields("write", side(() -> client.producer.fetchPublishMessageQueues(topic)),
            "read", side(() -> client.consumer.fetchSubscribeMessageQueues(topic)));
    }

    private Object side(Callable<Collection<MessageQueue>> fetch) {
        try {
            return Views.queues(fetch.call());
        } catch (Exception failure) {
            return failure.getClass().getSimpleName();
        }
    }
}
