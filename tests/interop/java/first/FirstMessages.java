import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.Message;

/**
 * A new group on a new topic whose first messages are sent right after start(): which of them does it miss?
 * Each round has a topic, a group and a client instance of its own; a few rounds run at once.
 * Usage: FirstMessages namesrvAddr brokerAddr prefix rounds queues messages clientRebalance
 * Prints a line "lost ROUND: KEYS" for each round that misses some after a while, and "rounds N" at the end.
 */
public final class FirstMessages {
    private static final int AT_ONCE = 10;
    private static final int PATIENT_MS = 30_000;
    private static final int STALLED_MS = 2_000;
    private static final int POLL_MS = 5;

    private final Client client;
    private final int queues;
    private final int messages;
    private final boolean clientRebalance;

    private FirstMessages(Client client, int queues, int messages, boolean clientRebalance) {
        this.client = client;
        this.queues = queues;
        this.messages = messages;
        this.clientRebalance = clientRebalance;
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            Client client = new Client(arguments[0], arguments[1], arguments[2]);
            new FirstMessages(client, Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]),
                Boolean.parseBoolean(arguments[6])).all(Integer.parseInt(arguments[3]));
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the clients leave threads behind
    }

    private void all(int rounds) throws Exception {
        String warm = client.createTopic("warm"); // connections are there before several threads want one at once
        Client.eventually(() -> client.producer.send(new Message(warm, Bodies.text(1))) != null);
        ExecutorService workers = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<?>> running = new ArrayList<>();
        for (int i = 0; i < rounds; i++) {
            int round = i;
            running.add(workers.submit(() -> {
                round(round);
                return null;
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
        System.out.println("rounds " + rounds);
    }

    private void round(int number) throws Exception {
        String topic = client.createTopic("first" + number, queues, queues, 6);
        client.producer.fetchPublishMessageQueues(topic); // so that nothing is left to be done before the first send
        Set<String> missing = ConcurrentHashMap.newKeySet();
        for (int i = 0; i < messages; i++) {
            missing.add("k" + i);
        }
        DefaultMQPushConsumer consumer = consumer("first" + number, topic, missing);
        consumer.start();
        for (int i = 0; i < messages; i++) {
            Message message = new Message(topic, "", "k" + i, Bodies.text(1));
            client.producer.send(message, client.queue(topic, i % queues));
        }
        await(consumer, topic, missing);
        if (!missing.isEmpty()) {
            System.out.println("lost " + number + ": " + missing);
        }
        consumer.suspend(); // a shutdown takes as long as a round: the process ends soon
    }

    /** A client whose first heartbeat was not heard waits 30 s for the next one, with Apache's servers too. */
    private static void await(DefaultMQPushConsumer consumer, String topic, Set<String> missing) throws Exception {
        MQClientInstance instance = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        for (int waited = 0; waited < PATIENT_MS && !missing.isEmpty(); waited += POLL_MS) {
            Thread.sleep(POLL_MS);
            if (waited >= STALLED_MS && waited % STALLED_MS == 0) {
                instance.updateTopicRouteInfoFromNameServer(topic);
                instance.sendHeartbeatToAllBrokerWithLock();
                instance.rebalanceImmediately();
            }
        }
    }

    private DefaultMQPushConsumer consumer(String name, String topic, Set<String> missing) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(client.topic(name));
        consumer.setNamesrvAddr(client.namesrv);
        consumer.setInstanceName(client.topic(name));
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        if (!clientRebalance) { // since 5.0
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        Client.patient(consumer);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (batch, context) -> {
            batch.forEach(message -> missing.remove(message.getKeys()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }
}
