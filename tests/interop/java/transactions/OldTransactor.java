import java.io.FileWriter;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;

/** As Transactor, in the way of clients before 4.3: work and check are given apart. 5.x has it no more. */
public final class OldTransactor {
    private OldTransactor() {
    }

    public static void main(String[] arguments) throws Exception {
        try (FileWriter log = new FileWriter(arguments[4], true)) {
            Transactor work = new Transactor(arguments[3], log);
            TransactionMQProducer producer = new TransactionMQProducer(arguments[1]);
            producer.setNamesrvAddr(arguments[0]);
            producer.setSendMsgTimeout(10_000);
            producer.setTransactionCheckListener(work::checkLocalTransaction);
            producer.start();
            Transactor.awaitRoute(producer, arguments[2]);
            for (int i = 5; i < arguments.length; i++) {
                byte[] body = arguments[i].getBytes(StandardCharsets.UTF_8);
                Message message = new Message(arguments[2], "tag", arguments[i], body);
                producer.sendMessageInTransaction(message, work::executeLocalTransaction, null);
            }
            System.out.println("all sent");
            Thread.sleep(Long.MAX_VALUE);
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }
}
