package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.UUID;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdminTestUtils;

/**
 * Stands before Apache's class of this name on the class path, which starts servers of Apache's in this process: their
 * integration tests then run against the servers that the system properties `interop.namesrv` and `interop.cluster`
 * name. It has the members that the tests of TLS use, and makes the same clients.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("interop.namesrv");
    protected static final String CLUSTER_NAME = System.getProperty("interop.cluster");
    private static final int QUEUES = 8;
    private static final int WAIT_S = 60;
    private static final List<RMQNormalProducer> PRODUCERS = new ArrayList<>();
    private static final List<RMQNormalConsumer> CONSUMERS = new ArrayList<>();

    public static String initTopic() {
        String topic = "topic-" + UUID.randomUUID();
        if (!MQAdminTestUtils.createTopic(NAMESRV_ADDR, CLUSTER_NAME, topic, QUEUES, new HashMap<>(), WAIT_S)) {
            throw new IllegalStateException("topic " + topic + " was not made");
        }
        return topic;
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic) {
        return getProducer(namesrv, topic, false);
    }

    public static RMQNormalProducer getProducer(String namesrv, String topic, boolean useTls) {
        RMQNormalProducer producer = new RMQNormalProducer(namesrv, topic, useTls);
        PRODUCERS.add(producer);
        return producer;
    }

    public static RMQNormalConsumer getConsumer(
        String namesrv, String topic, String expression, AbstractListener listener, boolean useTls) {
        String group = "group-" + UUID.randomUUID();
        RMQNormalConsumer consumer =
            ConsumerFactory.getRMQNormalConsumer(namesrv, group, topic, expression, listener, useTls);
        CONSUMERS.add(consumer);
        return consumer;
    }

    public static void shutdown() {
        PRODUCERS.forEach(RMQNormalProducer::shutdown);
        CONSUMERS.forEach(RMQNormalConsumer::shutdown);
        PRODUCERS.clear();
        CONSUMERS.clear();
    }
}
