import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.statictopic.TopicConfigAndQueueMapping;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Every call that the RocketMQ Dashboard makes, page by page, with the admin library that it is built with.
 * Usage: Dashboard namesrvAddr brokerAddr prefix outputFile
 */
public final class Dashboard {
    private static final long TIMEOUT_MS = 15_000;

    private final String namesrv;
    private final String broker;
    private final String prefix;
    private final Answers answers;
    private final Views views;
    private final Beans beans;
    private final Scene scene;
    private final DefaultMQAdminExt admin;
    private final String topic;
    private final String live;
    private final String gone;
    private final String clientId;
    private final Map<String, Object> sent;

    private Dashboard(String namesrv, String broker, String prefix) throws Exception {
        this.namesrv = namesrv;
        this.broker = broker;
        this.prefix = prefix;
        answers = new Answers(namesrv, broker, prefix);
        views = new Views(answers, broker);
        beans = new Beans(answers);
        scene = new Scene(namesrv);
        admin = new DefaultMQAdminExt(Credentials.hook(), TIMEOUT_MS);
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("dashboard");
        admin.start();
        topic = prefix + "board";
        live = prefix + "live";
        gone = prefix + "gone";
        createTopic(topic);
        sent = scene.send(topic, 0, "tagA", "keyA", "first");
        scene.send(topic, 1, "tagB", "keyB", "second");
        scene.push(gone, topic, "*", "concurrently", -1);
        clientId = scene.push(live, topic, "*", "concurrently", 0);
        for (String group : Arrays.asList(live, gone)) {
            scene.took(group, 2);
            scene.committed(broker, group, topic, 0, "1");
            scene.committed(broker, group, topic, 1, "1");
        }
        scene.stop(gone);
        scene.act("heartbeat", new String[0]);
        scene.act("indexed", new String[] {topic, "keyB"});
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            Dashboard dashboard = new Dashboard(arguments[0], arguments[1], arguments[2]);
            dashboard.run();
            dashboard.answers.write(arguments[3]);
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        Runtime.getRuntime().halt(status); // the clients leave threads behind
    }

    private void run() {
        cluster(answers.scenario("dashboard: cluster"));
        topics(answers.scenario("dashboard: topics"));
        consumers(answers.scenario("dashboard: consumers"));
        producers(answers.scenario("dashboard: producers"));
        messages(answers.scenario("dashboard: messages"));
        collector(answers.scenario("dashboard: collector"));
        offsets(answers.scenario("dashboard: offsets"));
        access(answers.scenario("dashboard: access"));
        removing(answers.scenario("dashboard: removing"));
    }

    private void cluster(Answers.Steps steps) {
        steps.step("examineBrokerClusterInfo", () -> beans.view(admin.examineBrokerClusterInfo()));
        steps.step("fetchBrokerRuntimeStats", () -> names(admin.fetchBrokerRuntimeStats(broker).getTable().keySet()));
        steps.step("getTotalTps", () -> {
            for (String rate : admin.fetchBrokerRuntimeStats(broker).getTable().get("getTotalTps").split(" ")) {
                Double.parseDouble(rate);
            }
            return "rates";
        });
        steps.step("getBrokerConfig", () -> {
            Properties settings = admin.getBrokerConfig(broker);
            Map<String, String> some = new TreeMap<>();
            for (String name : Arrays.asList("brokerName", "brokerClusterName", "brokerId", "brokerRole", "flushDiskType",
                "autoCreateTopicEnable", "fileReservedTime", "deleteWhen", "maxMessageSize", "brokerIP1")) {
                some.put(name, settings.getProperty(name));
            }
            return some;
        });
    }

    /** One entry each, so that a difference names it. How far delay levels are is there when they were used. */
    private Map<String, Boolean> names(Set<String> keys) {
        Map<String, Boolean> names = new TreeMap<>();
        keys.forEach(key -> names.put(key.startsWith("commitLogDiskRatio_") ? "commitLogDiskRatio_<directory>" : key, true));
        names.keySet().removeIf(key -> key.startsWith("scheduleMessageOffset_"));
        return names;
    }

    private void topics(Answers.Steps steps) {
        steps.step("fetchAllTopicList", () -> own(admin.fetchAllTopicList().getTopicList()));
        steps.step("getSystemTopicList", () -> beans.view(api().getSystemTopicList(TIMEOUT_MS).getTopicList()));
        steps.step("getAllTopicConfig", () -> {
            Map<String, Object> mine = new TreeMap<>();
            for (Map.Entry<String, TopicConfig> entry : admin.getAllTopicConfig(broker, TIMEOUT_MS).getTopicConfigTable().entrySet()) {
                if (entry.getKey().contains(prefix) || entry.getKey().equals("TBW102") || entry.getKey().equals(Client.BROKER)) {
                    mine.put(answers.clean(entry.getKey()), beans.view(entry.getValue()));
                }
            }
            return mine;
        });
        for (String name : Arrays.asList(topic, prefix + "nowhere", "%RETRY%" + live)) {
            String step = " of " + name.replace(prefix, "");
            steps.step("examineTopicStats" + step, () -> beans.view(admin.examineTopicStats(name)));
            steps.step("examineTopicRouteInfo" + step, () -> beans.view(admin.examineTopicRouteInfo(name)));
            steps.step("queryTopicConsumeByWho" + step, () -> beans.view(admin.queryTopicConsumeByWho(name)));
            steps.step("GET_TOPIC_CONFIG" + step, () -> topicConfig(name));
        }
        changes(steps);
    }

    private void changes(Answers.Steps steps) {
        TopicConfig config = new TopicConfig(prefix + "made", 3, 2, 6);
        for (String type : Arrays.asList("NORMAL", "FIFO", "DELAY", "TRANSACTION", "NONSENSE")) {
            steps.step("createAndUpdateTopicConfig, type " + type, () -> {
                config.setAttributes(Collections.singletonMap("+message.type", type));
                admin.createAndUpdateTopicConfig(broker, config);
                return topicConfig(prefix + "made");
            });
        }
        steps.step("createAndUpdateTopicConfig, bad name", () -> {
            admin.createAndUpdateTopicConfig(broker, new TopicConfig(prefix + "a b", 1, 1, 6));
            return "made";
        });
        steps.step("createAndUpdateTopicConfig, perm 9", () -> {
            admin.createAndUpdateTopicConfig(broker, new TopicConfig(prefix + "perm9", 1, 1, 9));
            return "made";
        });
    }

    private Set<String> own(Set<String> names) {
        Set<String> own = new TreeSet<>();
        for (String name : names) {
            if (name.contains(prefix)) {
                own.add(answers.clean(name));
            }
        }
        return own;
    }

    /** As the Dashboard asks: a request of its own making. */
    private Object topicConfig(String name) throws Exception {
        RemotingCommand answer = raw(351, "topic", name);
        if (answer.getCode() != 0) {
            return views.answer(answer);
        }
        return beans.view(RemotingSerializable.decode(answer.getBody(), TopicConfigAndQueueMapping.class));
    }

    private void consumers(Answers.Steps steps) {
        steps.step("GET_ALL_SUBSCRIPTIONGROUP_CONFIG without header", () -> {
            RemotingCommand answer = raw(201);
            return groupViews(RemotingSerializable.decode(answer.getBody(), SubscriptionGroupWrapper.class));
        });
        steps.step("getAllSubscriptionGroup", () -> groupViews(admin.getAllSubscriptionGroup(broker, TIMEOUT_MS)));
        for (String group : Arrays.asList(live, gone, prefix + "nogroup")) {
            String of = " of " + group.replace(prefix, "");
            steps.step("examineConsumeStats" + of, () -> beans.view(settled(admin.examineConsumeStats(group))));
            steps.step("examineConsumeStats at the broker" + of, () ->
                beans.view(settled(admin.examineConsumeStats(broker, group, null, 3000))));
            steps.step("examineConsumeStats of a topic" + of, () -> beans.view(admin.examineConsumeStats(group, topic)));
            steps.step("examineConsumerConnectionInfo" + of, () -> beans.view(admin.examineConsumerConnectionInfo(group)));
            steps.step("examineConsumerConnectionInfo at the broker" + of, () ->
                beans.view(admin.examineConsumerConnectionInfo(group, broker)));
            steps.step("getConsumerRunningInfo" + of, () -> running(group, clientId, false));
        }
        steps.step("getConsumerRunningInfo with threads", () -> running(live, clientId, true));
        steps.step("getConsumerRunningInfo of nobody", () -> running(live, "nobody", false));
        steps.step("createAndUpdateSubscriptionGroupConfig", () -> {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(prefix + "made");
            config.setRetryMaxTimes(3);
            config.setConsumeMessageOrderly(true);
            admin.createAndUpdateSubscriptionGroupConfig(broker, config);
            return beans.view(admin.getAllSubscriptionGroup(broker, TIMEOUT_MS).getSubscriptionGroupTable().get(prefix + "made"));
        });
    }

    private Object groupViews(SubscriptionGroupWrapper wrapper) throws Exception {
        Map<String, Object> some = new TreeMap<>();
        for (Map.Entry<String, SubscriptionGroupConfig> entry : wrapper.getSubscriptionGroupTable().entrySet()) {
            if (entry.getKey().contains(prefix) || MixAll.isSysConsumerGroup(entry.getKey())) {
                some.put(answers.clean(entry.getKey()), beans.view(entry.getValue()));
            }
        }
        return some;
    }

    private Object running(String group, String client, boolean threads) throws Exception {
        org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo info = admin.getConsumerRunningInfo(group, client, threads);
        return Answers.fields(
            "queues", beans.view(info.getMqTable().keySet()),
            "subscriptions", beans.view(info.getSubscriptionSet()),
            "group", answers.clean(info.getProperties().getProperty("consumerGroup")),
            "threads", info.getJstack() != null);
    }

    private void producers(Answers.Steps steps) {
        steps.step("examineProducerConnectionInfo", () -> beans.view(admin.examineProducerConnectionInfo("scene", topic)));
        steps.step("examineProducerConnectionInfo of nobody", () ->
            beans.view(admin.examineProducerConnectionInfo(prefix + "nobody", topic)));
    }

    private void messages(Answers.Steps steps) {
        String id = (String) sent.get("id");
        steps.step("view by id", () -> views.messages(viewMessage(topic, id).getMessageList()));
        steps.step("view by an id that nobody has", () -> views.messages(viewMessage(topic, "7F0000010000000000000000000000AA").getMessageList()));
        steps.step("view by offset id", () -> views.message(admin.viewMessage(topic, (String) sent.get("offsetId"))));
        steps.step("query by key", () ->
            views.messages(admin.queryMessage(topic, "keyA", 64, 0, System.currentTimeMillis()).getMessageList()));
        steps.step("query by a key that nobody has", () ->
            views.messages(admin.queryMessage(topic, "nokey", 64, 0, System.currentTimeMillis()).getMessageList()));
        steps.step("messageTrackDetail", () -> beans.view(admin.messageTrackDetail(first(topic, id))));
        steps.step("consumeMessageDirectly", () -> beans.view(admin.consumeMessageDirectly(live, clientId, topic, id)));
        steps.step("consumeMessageDirectly, nobody", () -> beans.view(admin.consumeMessageDirectly(live, "nobody", topic, id)));
        steps.step("consumeMessageDirectly, group gone", () -> beans.view(admin.consumeMessageDirectly(gone, clientId, topic, id)));
        steps.step("test send", () -> testSend());
        steps.step("message page", this::page);
        steps.step("dead letters", () -> {
            scene.send(topic, 0, "", "dead", "fail");
            scene.ends(broker, "%DLQ%" + live, 0, "1");
            scene.act("route", new String[] {"%DLQ%" + live});
            DefaultMQPullConsumer consumer = tools();
            try {
                MessageQueue queue = new MessageQueue("%DLQ%" + live, Client.BROKER, 0);
                return views.pulled(consumer.pull(queue, "*", 0, 32));
            } finally {
                consumer.shutdown();
            }
        });
    }

    private Object testSend() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(MixAll.SELF_TEST_PRODUCER_GROUP, Credentials.hook());
        producer.setInstanceName("test-send");
        producer.setNamesrvAddr(namesrv);
        Client.patient(producer);
        producer.start();
        try {
            createTopic(prefix + "sends");
            Message message = new Message(prefix + "sends", "tag", "key", "body".getBytes(StandardCharsets.UTF_8));
            return views.sent(producer.send(message)).get("status");
        } finally {
            producer.shutdown();
        }
    }

    private Object page() throws Exception {
        DefaultMQPullConsumer consumer = tools();
        try {
            Map<String, Object> pages = new TreeMap<>();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                pages.put(queue.getQueueId() + " from", consumer.searchOffset(queue, 0));
                pages.put(queue.getQueueId() + " to", consumer.searchOffset(queue, System.currentTimeMillis() + 1000));
                pages.put(queue.getQueueId() + " pulled", views.pulled(consumer.pull(queue, "*", 0, 32)));
            }
            return pages;
        } finally {
            consumer.shutdown();
        }
    }

    private DefaultMQPullConsumer tools() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(MixAll.TOOLS_CONSUMER_GROUP, Credentials.hook());
        consumer.setInstanceName("pages" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        Client.patient(consumer);
        consumer.start();
        return consumer;
    }

    private MessageExt first(String name, String id) throws Exception {
        return viewMessage(name, id).getMessageList().get(0);
    }

    /** A private way of the library that the Dashboard takes. */
    private QueryResult viewMessage(String name, String id) throws Exception {
        Object inner = factory().getMQAdminImpl();
        for (Method method : inner.getClass().getDeclaredMethods()) {
            if (method.getName().equals("queryMessage") && method.getParameterCount() == 7) {
                method.setAccessible(true);
                try {
                    return (QueryResult) method.invoke(inner, Client.CLUSTER, name, id, 32, 0L, Long.MAX_VALUE, true);
                } catch (java.lang.reflect.InvocationTargetException wrapped) {
                    throw (Exception) wrapped.getCause();
                }
            }
        }
        throw new IllegalStateException("no such method");
    }

    private void collector(Answers.Steps steps) {
        steps.step("viewBrokerStatsData TOPIC_PUT_NUMS", () -> beans.view(admin.viewBrokerStatsData(broker, "TOPIC_PUT_NUMS", topic)).getClass().getSimpleName());
        steps.step("viewBrokerStatsData TOPIC_PUT_NUMS of nothing", () ->
            beans.view(admin.viewBrokerStatsData(broker, "TOPIC_PUT_NUMS", prefix + "nowhere")));
        steps.step("viewBrokerStatsData GROUP_GET_NUMS", () -> beans.view(
            admin.viewBrokerStatsData(broker, "GROUP_GET_NUMS", topic + "@" + live)).getClass().getSimpleName());
        steps.step("viewBrokerStatsData GROUP_GET_NUMS of nothing", () ->
            beans.view(admin.viewBrokerStatsData(broker, "GROUP_GET_NUMS", topic + "@" + prefix + "nogroup")));
    }

    private void offsets(Answers.Steps steps) {
        for (String group : Arrays.asList(gone, prefix + "nogroup")) {
            String of = " of " + group.replace(prefix, "");
            steps.step("resetOffsetByTimestamp to the beginning" + of, () -> beans.view(admin.resetOffsetByTimestamp(topic, group, 0L, true)));
            steps.step("resetOffsetByTimestamp to the end" + of, () -> beans.view(admin.resetOffsetByTimestamp(topic, group, -1L, true)));
        }
        steps.step("resetOffsetByTimestampOld", () -> beans.view(admin.resetOffsetByTimestampOld(gone, topic, 0L, true)));
        steps.step("examineConsumeStats after it", () -> beans.view(admin.examineConsumeStats(gone, topic)));
        steps.step("resetOffsetByTimestamp of live", () -> {
            Object table = beans.view(admin.resetOffsetByTimestamp(topic, live, 0L, true));
            scene.took(live, 7); // three, the one consumed directly, and three again
            return table;
        });
    }

    /** Users and access rules: a broker that has none says so. */
    private void access(Answers.Steps steps) {
        steps.step("listUser", () -> beans.view(admin.listUser(broker, "")));
        steps.step("getUser", () -> beans.view(admin.getUser(broker, "somebody")));
        steps.step("createUser", () -> {
            admin.createUser(broker, "somebody", "secret1", "Normal");
            return "created";
        });
        steps.step("listAcl", () -> beans.view(admin.listAcl(broker, "", "")));
        steps.step("deleteUser", () -> {
            admin.deleteUser(broker, "somebody");
            return "deleted";
        });
    }

    private void removing(Answers.Steps steps) {
        Set<String> brokers = Collections.singleton(broker);
        Set<String> nameServers = new HashSet<>(Collections.singletonList(namesrv));
        steps.step("deleteSubscriptionGroup", () -> {
            admin.deleteSubscriptionGroup(broker, gone, true);
            admin.deleteTopicInBroker(brokers, "%RETRY%" + gone);
            admin.deleteTopicInNameServer(nameServers, "%RETRY%" + gone);
            return own(admin.getAllSubscriptionGroup(broker, TIMEOUT_MS).getSubscriptionGroupTable().keySet());
        });
        steps.step("deleteTopic", () -> {
            admin.deleteTopicInBroker(brokers, topic);
            admin.deleteTopicInNameServer(nameServers, topic);
            return own(admin.fetchAllTopicList().getTopicList());
        });
        steps.step("deleteTopic of nothing", () -> {
            admin.deleteTopicInBroker(brokers, prefix + "nowhere");
            admin.deleteTopicInNameServer(nameServers, prefix + "nowhere");
            return "deleted";
        });
        steps.step("deleteTopic of the system", () -> {
            admin.deleteTopicInBroker(brokers, "TBW102");
            return "deleted";
        });
    }

    /** Whether a group that is this young has committed an offset of its retry topic is chance. */
    private static ConsumeStats settled(ConsumeStats stats) {
        stats.getOffsetTable().keySet().removeIf(queue -> queue.getTopic().startsWith("%RETRY%"));
        return stats;
    }

    private void createTopic(String name) throws Exception {
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(name, 2, 2, 6));
        scene.act("route", new String[] {name});
    }

    private MQClientInstance factory() throws Exception {
        java.lang.reflect.Field outer = DefaultMQAdminExt.class.getDeclaredField("defaultMQAdminExtImpl");
        outer.setAccessible(true);
        java.lang.reflect.Field inner = outer.getType().getDeclaredField("mqClientInstance");
        inner.setAccessible(true);
        return (MQClientInstance) inner.get(outer.get(admin));
    }

    private MQClientAPIImpl api() throws Exception {
        return factory().getMQClientAPIImpl();
    }

    private RemotingCommand raw(int code, String... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        if (fields.length > 0) {
            HashMap<String, String> ext = new HashMap<>();
            ext.put(fields[0], fields[1]);
            request.setExtFields(ext);
        }
        return api().getRemotingClient().invokeSync(broker, request, TIMEOUT_MS);
    }
}
