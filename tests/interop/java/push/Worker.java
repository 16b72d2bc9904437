import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends and consumes until it is told to end, or killed, and writes a line for each message into a file per job. After a
 * restart it goes on in the same files, under the same client ids. workers.py reads them and says what the lines mean.
 * Usage: Worker namesrvAddr directory (produce:NAME:TOPIC:KEYS:INTERVAL_MS:MODE | consume:NAME:GROUP:TOPIC:MODE)...
 * Modes: keyed (to the key's queue, again until acknowledged), strict (to the key's queue, once), sync, async, oneway;
 * concurrent, ordered. EVERY_MS in the environment: how often it asks for routes, commits and sends heartbeats.
 */
public final class Worker {
    private static final long AGAIN_MS = 100;
    private static final String EVERY_MS = System.getenv("EVERY_MS");

    private final String namesrv;
    private final File directory;
    private final List<Runnable> closing = new ArrayList<>();
    private volatile boolean ending;

    private Worker(String namesrv, File directory) {
        this.namesrv = namesrv;
        this.directory = directory;
    }

    public static void main(String[] arguments) {
        try {
            work(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1); // the clients leave threads behind
        }
    }

    private static void work(String[] arguments) throws Exception {
        Worker worker = new Worker(arguments[0], new File(arguments[1]));
        for (String job : Arrays.asList(arguments).subList(2, arguments.length)) {
            String[] words = job.split(":");
            if (words[0].equals("produce")) {
                worker.produce(words[1], words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]), words[5]);
            } else {
                worker.consume(words[1], words[2], words[3], words[4]);
            }
        }
        Runtime.getRuntime().addShutdownHook(new Thread(worker::end));
        System.out.println("working");
    }

    private void end() {
        ending = true;
        closing.forEach(Runnable::run);
    }

    private void produce(String name, String topic, int keys, long intervalMs, String mode) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(name);
        setIntervals(producer);
        producer.start();
        closing.add(producer::shutdown);
        Log log = new Log(name);
        Thread thread = new Thread(() -> {
            long sequence = 0;
            for (int i = 0; !ending; i++) {
                sequence = Math.max(sequence + 1, micros()); // larger than any before, over restarts too
                send(producer, log, topic, name + "-" + i % keys, sequence, i % keys, mode);
                pause(intervalMs);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void send(DefaultMQProducer producer, Log log, String topic, String key, long sequence, int which, String mode) {
        Message message = new Message(topic, null, key, (key + " " + sequence).getBytes(StandardCharsets.UTF_8));
        boolean done = false;
        while (!done && !ending) {
            try {
                if (mode.equals("keyed") || mode.equals("strict")) {
                    done = acknowledged(log, key, sequence, producer.send(message, (queues, sent, number) ->
                        queues.get((Integer) number % queues.size()), which)) || mode.equals("strict");
                } else if (mode.equals("sync")) {
                    acknowledged(log, key, sequence, producer.send(message));
                    done = true;
                } else if (mode.equals("async")) {
                    producer.send(message, later(log, key, sequence));
                    done = true;
                } else {
                    producer.sendOneway(message);
                    log.line("sent", key, sequence);
                    done = true;
                }
            } catch (Exception failed) {
                log.line("failed", key, sequence, failed.getClass().getSimpleName());
                done = !mode.equals("keyed");
                pause(AGAIN_MS);
            }
        }
    }

    private static boolean acknowledged(Log log, String key, long sequence, SendResult result) {
        boolean stored = result.getSendStatus() == SendStatus.SEND_OK;
        MessageQueue queue = result.getMessageQueue();
        log.line(stored ? "acknowledged" : "failed", key, sequence,
            queue.getBrokerName(), queue.getQueueId(), result.getQueueOffset());
        return stored;
    }

    private static SendCallback later(Log log, String key, long sequence) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                acknowledged(log, key, sequence, result);
            }

            @Override
            public void onException(Throwable failed) {
                log.line("failed", key, sequence, failed.getClass().getSimpleName());
            }
        };
    }

    private void consume(String name, String group, String topic, String mode) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        setIntervals(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.subscribe(topic, "*");
        Log log = new Log(name);
        if (mode.equals("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> got(log, message, context.getMessageQueue()));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> got(log, message, context.getMessageQueue()));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        closing.add(consumer::shutdown);
    }

    private static void setIntervals(ClientConfig client) {
        if (EVERY_MS != null) {
            client.setPollNameServerInterval(Integer.parseInt(EVERY_MS));
            client.setPersistConsumerOffsetInterval(Integer.parseInt(EVERY_MS));
            client.setHeartbeatBrokerInterval(Integer.parseInt(EVERY_MS));
        }
    }

    private static void got(Log log, MessageExt message, MessageQueue queue) {
        String[] words = new String(message.getBody(), StandardCharsets.UTF_8).split(" ");
        log.line("got", words[0], words[1], queue.getBrokerName(), message.getQueueId(), message.getQueueOffset(),
            message.getReconsumeTimes());
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException ending) {
            Thread.currentThread().interrupt();
        }
    }

    private static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
    }

    /** A line is one write, so that a kill leaves whole lines, and leaves all that were written. */
    private final class Log {
        private final OutputStream file;

        Log(String name) throws IOException {
            file = new FileOutputStream(new File(directory, name + ".log"), true);
        }

        synchronized void line(String verb, Object... words) {
            StringBuilder line = new StringBuilder(verb).append('\t').append(micros());
            for (Object word : words) {
                line.append('\t').append(word);
            }
            try {
                file.write(line.append('\n').toString().getBytes(StandardCharsets.UTF_8));
            } catch (IOException broken) {
                throw new IllegalStateException(broken);
            }
        }
    }
}
