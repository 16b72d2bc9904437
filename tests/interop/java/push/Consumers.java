import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;

/**
 * Runs the scenarios of push consumers in one process, all at once: they spend their time waiting, each has topics and
 * groups of its own, and each consumer is a client instance of its own.
 * Usage: Consumers namesrvAddr brokerAddr prefix outputFile [scenario...]
 */
public final class Consumers {
    private Consumers() {
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            run(arguments);
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the clients leave threads behind
    }

    /** Connections are there before dozens of threads want one at once. */
    private static void warmUp(Client client) throws Exception {
        Client.eventually(() -> client.createTopic("warm") != null);
        Client.eventually(() -> client.producer.send(new Message(client.topic("warm"), Bodies.text(1))) != null);
        Client.eventually(() -> client.consumer.maxOffset(client.queue(client.topic("warm"), 0)) > 0);
    }

    private static void run(String[] arguments) throws Exception {
        Answers answers = new Answers(arguments[0], arguments[1], arguments[2]);
        Client client = new Client(arguments[0], arguments[1], arguments[2]);
        warmUp(client);
        List<Thread> running = new ArrayList<>();
        all(new Crew(client, answers)).forEach((name, scenario) -> {
            if (arguments.length == 4 || Arrays.asList(arguments).contains(name)) {
                running.add(started(name, scenario, answers.scenario(name)));
            }
        });
        for (Thread thread : running) {
            thread.join();
        }
        answers.write(arguments[3]);
    }

    private static Thread started(String name, Scenarios.Scenario scenario, Answers.Steps steps) {
        long begun = System.currentTimeMillis();
        Thread thread = new Thread(() -> {
            try {
                scenario.run(steps);
            } catch (Throwable failure) {
                failure.printStackTrace();
                steps.step("broken off", () -> {
                    throw failure;
                });
            }
            System.out.println(name + ": " + (System.currentTimeMillis() - begun) + " ms");
        }, name);
        thread.start();
        return thread;
    }

    private static Map<String, Scenarios.Scenario> all(Crew crew) {
        Map<String, Scenarios.Scenario> scenarios = new LinkedHashMap<>();
        new Concurrent(crew).addTo(scenarios);
        new Ordered(crew).addTo(scenarios);
        new Broadcast(crew).addTo(scenarios);
        new Retrying(crew).addTo(scenarios);
        new SendingBack(crew).addTo(scenarios);
        new Delaying(crew).addTo(scenarios);
        new Resetting(crew).addTo(scenarios);
        new FirstOffsets(crew).addTo(scenarios);
        new Joining(crew).addTo(scenarios);
        addRequests(crew, scenarios);
        return scenarios;
    }

    /** Requests that await a reply came after 4.5.1: there the scenario is not compiled. */
    private static void addRequests(Crew crew, Map<String, Scenarios.Scenario> scenarios) {
        try {
            Class<?> type = Class.forName("Requesting");
            Object made = type.getDeclaredConstructor(Crew.class).newInstance(crew);
            type.getDeclaredMethod("addTo", Map.class).invoke(made, scenarios);
        } catch (ClassNotFoundException absent) {
            System.out.println("no requests in this client");
        } catch (ReflectiveOperationException broken) {
            throw new IllegalStateException(broken);
        }
    }
}
