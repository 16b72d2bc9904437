import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Random;

import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What Apache's allocation strategies answer to thousands of random questions. A line of the output is
 * `kind salt brokers members me result`: names follow from the numbers, as tests/unit/client/test_strategies.py
 * says, and the result is a list of places in the sorted list of queues.
 */
public final class Strategies {
    static final String[] KINDS = {"average", "circle", "hash", "hash3", "room", "near", "near-circle", "near-hash"};
    static final String[] ROOMS = {"east", "north", "south", "west"};

    public static void main(String[] arguments) throws IOException {
        Random chance = new Random(20261115L);
        int count = Integer.parseInt(arguments[1]);
        StringBuilder out = new StringBuilder("[\n");
        for (int number = 0; number < count; number++) {
            String line = question(chance, KINDS[number % KINDS.length]);
            out.append('"').append(line).append(number + 1 < count ? "\",\n" : "\"\n");
        }
        Files.write(Paths.get(arguments[0]), out.append("]\n").toString().getBytes(StandardCharsets.UTF_8));
    }

    static String question(Random chance, String kind) {
        int salt = chance.nextInt(100);
        int brokers = 1 + chance.nextInt(5);
        int members = 1 + chance.nextInt(chance.nextInt(4) == 0 ? 40 : 8);
        StringBuilder shape = new StringBuilder();
        List<MessageQueue> queues = new ArrayList<>();
        for (int broker = 0; broker < brokers; broker++) {
            int own = (broker == 0 ? 1 : 0) + chance.nextInt(12);
            int style = chance.nextInt(6);
            shape.append(broker == 0 ? "" : ",").append(style).append(':').append(own);
            for (int id = 0; id < own; id++) {
                queues.add(new MessageQueue("Topic" + salt, brokerName(style, broker), id));
            }
        }
        List<String> ids = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            ids.add(memberId(salt, member));
        }
        Collections.sort(queues);
        Collections.sort(ids);
        int me = chance.nextInt(12) == 0 ? members : chance.nextInt(members);
        String own = me < members ? ids.get(me) : "10.9.9.9@nobody#1";
        List<MessageQueue> given = strategy(kind).allocate("group", own, queues, ids);
        List<String> places = new ArrayList<>();
        for (MessageQueue queue : given) {
            places.add(String.valueOf(queues.indexOf(queue)));
        }
        return String.join(" ", kind, String.valueOf(salt), shape, String.valueOf(members), String.valueOf(me),
            places.isEmpty() ? "-" : String.join(",", places));
    }

    static String brokerName(int style, int broker) {
        switch (style) {
            case 4:
                return "broker-" + broker;
            case 5:
                return ROOMS[broker % 4] + "@broker-" + broker + "@";
            default:
                return ROOMS[style] + "@broker-" + broker;
        }
    }

    static String memberId(int salt, int member) {
        return ROOMS[(member * 7 + salt) % 3] + "-10.0." + salt + "." + member + "@" + (1000 + member * 37 + salt)
            + "#" + (salt * 7919L + member * 104729L);
    }

    static AllocateMessageQueueStrategy strategy(String kind) {
        switch (kind) {
            case "average":
                return new AllocateMessageQueueAveragely();
            case "circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "hash":
                return new AllocateMessageQueueConsistentHash();
            case "hash3":
                return new AllocateMessageQueueConsistentHash(3);
            case "room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(Arrays.asList("east", "west")));
                return room;
            case "near":
                return new AllocateMachineRoomNearby(strategy("average"), new Rooms());
            case "near-circle":
                return new AllocateMachineRoomNearby(strategy("circle"), new Rooms());
            case "near-hash":
                return new AllocateMachineRoomNearby(strategy("hash"), new Rooms());
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** The room is the first word of a name. */
    static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("[@-]")[0];
        }

        @Override
        public String consumerDeployIn(String id) {
            return id.split("-")[0].equals("10.9.9.9@nobody#1") ? "nowhere" : id.split("-")[0];
        }
    }
}
