import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin and the clients that it is to look at, all in one process that is spoken to: a line of words separated by tabs
 * comes in, a line of JSON goes out. What mqadmin prints is not judged here.
 * Usage: Console namesrvAddr
 */
public final class Console {
    private static final long END_MS = 10_000;
    private static final long LOOK_MS = 20;

    private Console() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        System.setSecurityManager(new NoExit());
        Scene scene = new Scene(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(scene, line.split("\t", -1)));
        }
        Runtime.getRuntime().halt(0); // the clients leave threads behind
    }

    private static String answer(Scene scene, String[] words) {
        Object answer;
        try {
            String[] rest = Arrays.copyOfRange(words, 1, words.length);
            if (words[0].equals("mqadmin")) {
                answer = mqadmin(Long.parseLong(rest[0]), rest[1], Arrays.copyOfRange(rest, 2, rest.length));
            } else {
                answer = scene.act(words[0], rest);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            answer = Answers.fields("broken", failure.toString());
        }
        StringBuilder out = new StringBuilder();
        Json.write(out, answer);
        return out.toString().replace("\n", ""); // inside texts they are escaped
    }

    /** One command, in a thread of its own: some go on until they are interrupted, which is when they said `until`. */
    private static Map<String, Object> mqadmin(long limitMs, String until, String[] words) throws Exception {
        forgetCommands();
        AtomicInteger status = new AtomicInteger();
        Thread worker = new Thread(() -> status.set(exitStatus(words)), "mqadmin");
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        boolean endless;
        try {
            worker.start();
            endless = !ends(worker, limitMs, () -> !until.isEmpty() && printed.toString().contains(until));
            if (endless) {
                worker.interrupt();
                ends(worker, END_MS, () -> false);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return Answers.fields("status", status.get(), "endless", endless, "printed", printed.toString("UTF-8"));
    }

    private static boolean ends(Thread worker, long limitMs, BooleanSupplier enough) throws InterruptedException {
        long deadline = System.currentTimeMillis() + limitMs;
        while (worker.isAlive() && !enough.getAsBoolean() && System.currentTimeMillis() < deadline) {
            worker.join(LOOK_MS);
            if (stopsItsClient(worker)) {
                wakePollers();
            }
        }
        return !worker.isAlive();
    }

    /** A client that stops waits for a thread of its own that looks for events every three seconds. */
    private static boolean stopsItsClient(Thread worker) {
        return Arrays.stream(worker.getStackTrace()).anyMatch(
            frame -> frame.getMethodName().equals("shutdown") && frame.getClassName().endsWith(".NettyRemotingClient"));
    }

    private static void wakePollers() {
        Thread[] threads = new Thread[Thread.activeCount() * 2];
        int count = Thread.enumerate(threads);
        for (int i = 0; i < count; i++) {
            if (threads[i].getName().equals("NettyEventExecutor")) {
                threads[i].interrupt();
            }
        }
    }

    private static int exitStatus(String[] words) {
        try {
            MQAdminStartup.main(words);
            return 0;
        } catch (Exit exit) {
            return exit.status;
        } catch (Throwable failure) {
            failure.printStackTrace();
            return 1;
        }
    }

    /** A command object keeps its stopped client, and a process of one command never runs it twice. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((Collection<?>) field.get(null)).clear();
            }
        }
    }

    /** mqadmin ends the process when it does not like its options. An error, because it catches exceptions. */
    private static final class Exit extends Error {
        private static final long serialVersionUID = 1;
        private final int status;

        Exit(int status) {
            this.status = status;
        }
    }

    private static final class NoExit extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new Exit(status);
        }

        @Override
        public void checkPermission(Permission permission) {
            // all else is allowed
        }
    }
}
