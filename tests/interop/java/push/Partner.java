import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A Java client that our own client talks with. It sends every key of its list by hash, a body that it compresses and
 * a question; and it replies to every message of a topic with what it saw of it.
 * Usage: Partner namesrvAddr byHashTopic bigTopic questionTopic answeredTopic KEY..., keys as in a URL
 */
public final class Partner {
    private static final int BIG = 100_000;
    private static final long WAIT_MS = 60_000;

    private Partner() {
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // the clients leave threads behind
        }
    }

    private static void run(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        DefaultMQProducer producer = new DefaultMQProducer("partner");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("partner");
        producer.setSendMsgTimeout(20_000);
        producer.start();
        answer(namesrv, arguments[4], producer);
        for (int i = 5; i < arguments.length; i++) {
            String key = URLDecoder.decode(arguments[i], "UTF-8");
            Message message = new Message(arguments[1], null, key, key.getBytes(StandardCharsets.UTF_8));
            producer.send(message, new SelectMessageQueueByHash(), key);
        }
        producer.send(new Message(arguments[2], "big", "big", Bodies.text(BIG)));
        System.out.println("working");
        Message reply = producer.request(new Message(arguments[3], null, "question", "what?".getBytes()), WAIT_MS);
        producer.send(new Message(arguments[2], "reply", "reply", reply.getBody()));
    }

    private static void answer(String namesrv, String topic, DefaultMQProducer producer) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("partners");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("partner-consumer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    producer.send(MessageUtil.createReplyMessage(message, seen(message)));
                } catch (Exception failed) {
                    failed.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    /** Its key, a property, and whether the body is the text that compresses well. */
    private static byte[] seen(MessageExt message) {
        byte[] body = message.getBody();
        boolean same = Arrays.equals(body, Bodies.text(body.length));
        String text = message.getKeys() + " " + message.getUserProperty("größe") + " " + body.length + " " + same;
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
