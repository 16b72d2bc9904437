import java.io.FileWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages in transactions and answers checks, until it is killed or told to end.
 * Usage: Transactor namesrvAddr group topic phase logFile (NAME:LOCAL:PHASE)...
 * LOCAL is what the local work does: commit, rollback, unknown, throw, hang or slow. A check says commit in the
 * phase that the message names, rollback where it names it with an exclamation mark, and unknown in others.
 */
public final class Transactor implements TransactionListener {
    private final String phase;
    private final FileWriter log;

    Transactor(String phase, FileWriter log) {
        this.phase = phase;
        this.log = log;
    }

    public static void main(String[] arguments) throws Exception {
        try (FileWriter log = new FileWriter(arguments[4], true)) {
            TransactionMQProducer producer = new TransactionMQProducer(arguments[1]);
            producer.setNamesrvAddr(arguments[0]);
            producer.setSendMsgTimeout(10_000);
            producer.setTransactionListener(new Transactor(arguments[3], log));
            producer.start();
            awaitRoute(producer, arguments[2]);
            for (int i = 5; i < arguments.length; i++) {
                byte[] body = arguments[i].getBytes(StandardCharsets.UTF_8);
                producer.sendMessageInTransaction(new Message(arguments[2], "tag", arguments[i], body), null);
            }
            System.out.println("all sent");
            Thread.sleep(Long.MAX_VALUE);
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    /** On a busy machine the first question to the name server may take longer than the client waits. */
    static void awaitRoute(TransactionMQProducer producer, String topic) throws Exception {
        for (int again = 0; again < 20; again++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException failure) {
                Thread.sleep(500);
            }
        }
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        String[] words = new String(message.getBody(), StandardCharsets.UTF_8).split(":");
        note("executed " + words[0]);
        switch (words[1]) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            case "throw":
                throw new IllegalStateException("as wished");
            case "slow":
                pause(4000);
                return LocalTransactionState.COMMIT_MESSAGE;
            case "hang":
                pause(Long.MAX_VALUE);
                return null;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        String[] words = new String(message.getBody(), StandardCharsets.UTF_8).split(":");
        note("checked " + words[0]);
        if (words[2].equals(phase)) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
        return words[2].equals("!" + phase) ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }

    private synchronized void note(String line) {
        try {
            log.write(line + "\n");
            log.flush();
        } catch (IOException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }
}
