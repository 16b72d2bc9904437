import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What of a result is the same in every run. */
final class Views {
    private static final int COMPRESSION_FLAGS = 0x701;

    private final Answers answers;
    private final String brokerAddr;

    Views(Answers answers, String brokerAddr) {
        this.answers = answers;
        this.brokerAddr = brokerAddr;
    }

    Map<String, Object> sent(SendResult result) {
        if (result == null) {
            return null;
        }
        return Answers.fields(
            "status", result.getSendStatus(),
            "queue", result.getMessageQueue().getQueueId(),
            "offset", result.getQueueOffset(),
            "msgId", shape(result.getMsgId()),
            "offsetMsgId", shape(result.getOffsetMsgId()),
            "transactionId", shape(result.getTransactionId()),
            "region", result.getRegionId(),
            "traceOn", result.isTraceOn());
    }

    /** A batch answers with one id per message, joined by commas. */
    private String shape(String id) {
        return answers.clean(id);
    }

    Map<String, Object> pulled(PullResult result) {
        List<Object> found = new ArrayList<>();
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> found.add(brief(message)));
        }
        return Answers.fields(
            "status", result.getPullStatus(),
            "next", result.getNextBeginOffset(),
            "min", result.getMinOffset(),
            "max", result.getMaxOffset(),
            "found", found);
    }

    /** Enough to tell which message it is. */
    String brief(MessageExt message) {
        String tags = message.getTags() == null ? "" : " " + message.getTags();
        return message.getQueueId() + "/" + message.getQueueOffset() + tags + " " + body(message.getBody());
    }

    Map<String, Object> message(MessageExt message) {
        InetSocketAddress store = (InetSocketAddress) message.getStoreHost();
        Map<String, Object> view = Answers.fields(
            "topic", answers.clean(message.getTopic()),
            "queue", message.getQueueId(),
            "offset", message.getQueueOffset(),
            "tags", message.getTags(),
            "keys", message.getKeys(),
            "flag", message.getFlag(),
            "sysFlag", message.getSysFlag(),
            "reconsumeTimes", message.getReconsumeTimes(),
            "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "body", body(message.getBody()),
            "properties", answers.clean(message.getProperties()),
            "bornHost", message.getBornHostString(),
            "storeHostIsTheBroker", brokerAddr.equals(store.getAddress().getHostAddress() + ":" + store.getPort()),
            "msgId", shape(message.getMsgId()));
        if ((message.getSysFlag() & COMPRESSION_FLAGS) == 0) { // otherwise the compressor of this machine decides
            view.put("bodyCrc", message.getBodyCRC());
            view.put("storeSizeLessIds", message.getStoreSize() - idBytes(message));
        }
        return view;
    }

    private int idBytes(MessageExt message) {
        String id = message.getProperty("UNIQ_KEY");
        String transaction = message.getProperty("__transactionId__");
        return (id == null ? 0 : id.length()) + (transaction == null ? 0 : transaction.length());
    }

    List<Object> messages(Collection<MessageExt> messages) {
        List<Object> views = new ArrayList<>();
        messages.forEach(message -> views.add(message(message)));
        return views;
    }

    Map<String, Object> answer(RemotingCommand response) {
        Map<String, Object> view = Answers.fields(
            "code", response.getCode(),
            "remark", answers.clean(response.getRemark()),
            "ext", answers.clean(response.getExtFields()));
        if (response.getBody() != null) {
            view.put("bodyLength", response.getBody().length);
        }
        return view;
    }

    /** The same without the body's length, where that depends on the machine. */
    Map<String, Object> answerHead(RemotingCommand response) {
        Map<String, Object> view = answer(response);
        view.remove("bodyLength");
        return view;
    }

    /** Queue ids per broker, such as {"broker-a": [0, 1]}. */
    static Map<String, Set<Integer>> queues(Collection<MessageQueue> queues) {
        Map<String, Set<Integer>> ids = new TreeMap<>();
        queues.forEach(queue -> ids.computeIfAbsent(queue.getBrokerName(), name -> new TreeSet<>()).add(queue.getQueueId()));
        return ids;
    }

    static String body(byte[] body) {
        if (body == null) {
            return "null";
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(body);
            return String.format("%d bytes %02x%02x%02x%02x", body.length, digest[0], digest[1], digest[2], digest[3]);
        } catch (java.security.NoSuchAlgorithmException never) {
            throw new IllegalStateException(never);
        }
    }
}
