import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/** Sends, consumes with one send-back, and queries, with credentials or without; prints what happened. */
public class Signing {
    static RPCHook hook(String[] args) {
        return args[1].isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(args[1], args[2]));
    }

    public static void main(String[] args) throws Exception {
        String topic = args[3], group = args[4];
        DefaultMQProducer producer = new DefaultMQProducer("PG-" + group, hook(args));
        producer.setNamesrvAddr(args[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(30_000);  // a busy machine loads classes for seconds
        producer.start();
        try {
            producer.send(new Message(topic, "tag", "key-1", "one".getBytes()));
            producer.send(List.of(new Message(topic, "two".getBytes()), new Message(topic, "three".getBytes())));
            System.out.println("sent");
            consume(args, topic, group);
            System.out.println("found " + producer.queryMessage(topic, "key-1", 8, 0, Long.MAX_VALUE).getMessageList().size());
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            System.out.println("failed " + cause.getMessage().split("\n")[0]);
        } finally {
            producer.shutdown();
        }
        System.exit(0);
    }

    static void consume(String[] args, String topic, String group) throws Exception {
        CountDownLatch consumed = new CountDownLatch(4);
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, hook(args), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            consumed.countDown();
            boolean again = new String(messages.get(0).getBody()).equals("two")
                && messages.get(0).getReconsumeTimes() == 0;
            context.setDelayLevelWhenNextConsume(1);
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("consumed " + consumed.await(90, TimeUnit.SECONDS));
        consumer.shutdown();
    }
}
