import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands, all in one process, and writes what they printed, line by line.
 * Usage: Admin namesrvAddr brokerAddr prefix outputFile
 */
public final class Admin {
    private static final Pattern BODY_FILE = Pattern.compile("(?m)^Message Body Path: +(\\S+)");
    /** Times, rates and sizes: another one each time. */
    private static final Pattern[] VOLATILE = {
        Pattern.compile("\\d{4}-\\d\\d-\\d\\d[ T#]\\d\\d:\\d\\d:\\d\\d([,.:]\\d{3})?"),
        Pattern.compile("\\b\\d{13}\\b"),
        Pattern.compile("\\d+\\.\\d+(\\([^)]*\\))?"),
        Pattern.compile("\\b\\d+-\\d+(?=\\()"), // how far the timer is
        Pattern.compile("(?<=@)\\d+$"), // the offset at the end of an index key
    };

    private static final String PROPERTIES = "Properties: {";
    private static final Pattern LEFT_OUT = Pattern.compile("\\s*$|\\tat |\\t\\.\\.\\.|WARNING|CommitLog Offset");

    private final Client client;
    private final Answers answers;
    private final Answers.Steps steps;

    private Admin(Client client, Answers answers) {
        this.client = client;
        this.answers = answers;
        steps = answers.scenario("mqadmin");
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            Client client = new Client(arguments[0], arguments[1], arguments[2]);
            Answers answers = new Answers(arguments[0], arguments[1], arguments[2]);
            new Admin(client, answers).run();
            answers.write(arguments[3]);
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.exit(status);
    }

    private void run() throws Exception {
        String topic = client.topic("admin");
        command("updateTopic", "-c", Client.CLUSTER, "-t", topic, "-r", "2", "-w", "3");
        Client.eventually(() -> client.raw(client.namesrv, 105, null, "topic", topic).getCode() == 0);
        command("topicRoute", "-t", topic);
        SendResult sent = client.producer.send(new Message(topic, "tagA", "keyA", Bodies.utf8("hello")), client.queue(topic, 1));
        client.settleKey(topic, "keyA");
        command("topicStatus", "-t", topic);
        command("topicClusterList", "-t", topic);
        command("clusterList");
        if (MQVersion.getVersionDesc(MQVersion.CURRENT_VERSION).startsWith("V5")) {
            command("queryMsgById", "-t", topic, "-i", sent.getOffsetMsgId());
        } else {
            command("queryMsgById", "-i", sent.getOffsetMsgId());
        }
        command("queryMsgByUniqueKey", "-t", topic, "-i", sent.getMsgId());
        command("queryMsgByKey", "-t", topic, "-k", "keyA");
        command("queryMsgByOffset", "-t", topic, "-b", Client.BROKER, "-i", "1", "-o", "0");
        command("sendMessage", "-t", topic, "-p", "body", "-k", "keyB", "-c", "tagB", "-b", Client.BROKER, "-i", "0");
        command("updateTopicPerm", "-c", Client.CLUSTER, "-t", topic, "-p", "4");
        command("updateTopic", "-b", client.brokerAddr, "-t", topic, "-r", "4", "-w", "4");
        Client.eventually(() -> client.producer.fetchPublishMessageQueues(topic).size() == 4);
        command("topicRoute", "-t", topic);
        command("updateTopic", "-b", client.brokerAddr, "-t", client.topic("a b"));
        command("topicRoute", "-t", client.topic("nowhere"));
        command("topicStatus", "-t", client.topic("nowhere"));
        command("queryMsgByKey", "-t", topic, "-k", "nokey");
        command("deleteTopic", "-c", Client.CLUSTER, "-t", topic);
        command("topicRoute", "-t", topic);
    }

    private void command(String... words) {
        List<String> all = new ArrayList<>(Arrays.asList(words));
        String name = answers.clean(String.join(" ", all));
        all.addAll(Arrays.asList("-n", client.namesrv));
        System.out.println(name); // mqadmin ends the process when it does not like its options
        steps.stepAgain(name, () -> lines(printedBy(all)));
    }

    /** mqadmin prints its answers and its exceptions; only their first words are kept. */
    private static String printedBy(List<String> words) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        try {
            MQAdminStartup.main(words.toArray(new String[0]));
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString("UTF-8");
    }

    private List<String> lines(String text) throws Exception {
        Matcher file = BODY_FILE.matcher(text);
        if (file.find()) {
            Files.deleteIfExists(new File(file.group(1)).toPath());
        }
        List<String> lines = new ArrayList<>();
        for (String line : text.split("\\R")) {
            if (!LEFT_OUT.matcher(line).lookingAt()) {
                lines.add(stable(line));
            }
        }
        return lines;
    }

    private String stable(String line) {
        line = answers.clean(line).trim().replaceAll("\\s+", " ");
        for (Pattern changing : VOLATILE) {
            line = changing.matcher(line).replaceAll("<n>");
        }
        return line.startsWith(PROPERTIES) ? sorted(line) : line;
    }

    /** A hash map prints its entries in an order that depends on how they came. */
    private static String sorted(String line) {
        String[] entries = line.substring(PROPERTIES.length(), line.length() - 1).split(", ");
        Arrays.sort(entries);
        return PROPERTIES + String.join(", ", entries) + "}";
    }
}
