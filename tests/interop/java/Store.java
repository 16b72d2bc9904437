import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Fills a store, or lists all that is in it. Verbs are carried out in order, in one process.
 * Usage: Store namesrvAddr brokerAddr (load COUNT ACKNOWLEDGED | census FILE)...
 */
public final class Store {
    /** Topic and number of queues; made by the first send. */
    static final String MANY = "StoreMany";
    static final int MANY_QUEUES = 4;
    static final String ONE = "StoreOne";

    private Store() {
    }

    public static void main(String[] arguments) {
        int status = 1;
        try {
            run(arguments[0], arguments[1], new ArrayList<>(Arrays.asList(arguments).subList(2, arguments.length)));
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.exit(status); // the clients leave threads behind
    }

    private static void run(String namesrv, String brokerAddr, List<String> verbs) throws Exception {
        Client client = new Client(namesrv, brokerAddr, "Store");
        while (!verbs.isEmpty()) {
            String verb = verbs.remove(0);
            long begun = System.currentTimeMillis();
            if (verb.equals("load")) {
                new Load(client).run(Integer.parseInt(verbs.remove(0)), verbs.remove(0));
            } else {
                new Census(client).write(verbs.remove(0));
            }
            System.out.println(verb + ": " + (System.currentTimeMillis() - begun) + " ms");
        }
    }
}
