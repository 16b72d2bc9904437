import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Runs every scenario in one process, against one name server, and writes what the client saw.
 * Usage: Scenarios namesrvAddr brokerAddr prefix outputFile [scenario...]
 */
public final class Scenarios {
    private static final long CLOSE_MS = 5000; // a lite pull consumer that gets no answers would take minutes

    interface Scenario {
        void run(Answers.Steps steps) throws Exception;
    }

    private Scenarios() {
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

    private static void run(String[] arguments) throws Exception {
        String namesrv = arguments[0];
        String brokerAddr = arguments[1];
        String prefix = arguments[2];
        Answers answers = new Answers(namesrv, brokerAddr, prefix);
        Client client = new Client(namesrv, brokerAddr, prefix);
        Views views = new Views(answers, brokerAddr);
        for (Map.Entry<String, Scenario> entry : all(client, views).entrySet()) {
            if (arguments.length == 4 || Arrays.asList(arguments).contains(entry.getKey())) {
                long begun = System.currentTimeMillis();
                run(entry.getValue(), answers.scenario(entry.getKey()));
                System.out.println(entry.getKey() + ": " + (System.currentTimeMillis() - begun) + " ms");
            }
        }
        answers.write(arguments[3]);
        Thread closing = new Thread(client::close);
        closing.start();
        closing.join(CLOSE_MS);
    }

    /** A scenario that cannot even be set up is an answer too. */
    private static void run(Scenario scenario, Answers.Steps steps) {
        try {
            scenario.run(steps);
        } catch (Throwable failure) {
            steps.step("broken off", () -> {
                throw failure;
            });
        }
    }

    private static Map<String, Scenario> all(Client client, Views views) {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        new Sending(client, views).addTo(scenarios);
        new Naming(client, views).addTo(scenarios);
        new PropertyLimits(client, views).addTo(scenarios);
        new Topics(client, views).addTo(scenarios);
        new Pulling(client, views).addTo(scenarios);
        new Offsets(client, views).addTo(scenarios);
        new Querying(client, views).addTo(scenarios);
        new Pushing(client, views).addTo(scenarios);
        addLitePull(client, views, scenarios);
        return scenarios;
    }

    /** The lite pull consumer came after 4.5.1: there its scenarios are not compiled. */
    private static void addLitePull(Client client, Views views, Map<String, Scenario> scenarios) {
        try {
            Class<?> type = Class.forName("LitePulling");
            Object made = type.getDeclaredConstructor(Client.class, Views.class).newInstance(client, views);
            type.getDeclaredMethod("addTo", Map.class).invoke(made, scenarios);
        } catch (ClassNotFoundException absent) {
            System.out.println("no lite pull consumer in this client");
        } catch (ReflectiveOperationException broken) {
            throw new IllegalStateException(broken);
        }
    }
}
