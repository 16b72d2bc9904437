import java.io.BufferedReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.filter.util.BloomFilterData;

/**
 * What Apache's filter classes answer. A line of the input is `set` and property pairs, `sql` and an expression,
 * or `bloom` with error rate, number of consumers and a text; all quoted as in a URL. A line of the output is, for
 * an expression, a letter for each property set: T(rue), F(alse), N(ull), E(rror), or X when it is not accepted;
 * for `bloom` the bits, positions and, in hexadecimal digits, a bit map.
 *
 * With a third argument, a number of seconds: evaluations of each expression over all sets per second of CPU time, after
 * as long a warm-up; with a fourth, `parsing`, the property string of a set is read for each evaluation, as a broker does.
 */
public final class Filters {
    static final List<Context> SETS = new ArrayList<>();
    static boolean parsing;

    public static void main(String[] arguments) throws Exception {
        parsing = arguments.length > 3;
        double seconds = arguments.length > 2 ? Double.parseDouble(arguments[2]) : 0;
        try (BufferedReader in = Files.newBufferedReader(Paths.get(arguments[0]), StandardCharsets.UTF_8);
             PrintStream out = new PrintStream(arguments[1], "UTF-8")) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ", -1);
                if (words[0].equals("set")) {
                    SETS.add(new Context(words));
                } else if (words[0].equals("sql")) {
                    String text = unquoted(words[1]);
                    out.println(seconds > 0 ? rate(text, seconds) : answers(text));
                } else {
                    out.println(bloom(Integer.parseInt(words[1]), Integer.parseInt(words[2]), unquoted(words[3])));
                }
            }
        }
    }

    static String answers(String text) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable refused) {
            return "X";
        }
        StringBuilder letters = new StringBuilder();
        for (Context set : SETS) {
            letters.append(letter(expression, set));
        }
        return letters.toString();
    }

    static char letter(Expression expression, Context set) {
        try {
            Object answer = expression.evaluate(set);
            return answer == null ? 'N' : (Boolean) answer ? 'T' : 'F';
        } catch (Throwable failed) {
            return 'E';
        }
    }

    static String rate(String text, double seconds) throws Exception {
        Expression expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        measured(expression, seconds);
        return String.format("%.0f", measured(expression, seconds));
    }

    static double measured(Expression expression, double seconds) {
        ThreadMXBean own = ManagementFactory.getThreadMXBean();
        long begun = own.getCurrentThreadCpuTime();
        long end = begun + (long) (seconds * 1e9);
        long count = 0;
        long matched = 0;
        while (own.getCurrentThreadCpuTime() < end) {
            for (int round = 0; round < 100; round++) {
                for (Context set : SETS) {
                    matched += letter(expression, parsing ? set.parsed() : set) == 'T' ? 1 : 0;
                }
            }
            count += 100L * SETS.size();
        }
        if (matched < 0) {
            throw new IllegalStateException();
        }
        return count / ((own.getCurrentThreadCpuTime() - begun) / 1e9);
    }

    static String bloom(int errorRate, int consumers, String text) {
        BloomFilter filter = BloomFilter.createByFn(errorRate, consumers);
        BloomFilterData data = filter.generate(text);
        BitsArray bits = BitsArray.create(filter.getM());
        filter.hashTo(data, bits);
        StringBuilder hex = new StringBuilder();
        for (byte one : bits.bytes()) {
            hex.append(String.format("%02x", one));
        }
        String positions = Arrays.toString(data.getBitPos()).replace(" ", "");
        return data.getBitNum() + " " + positions + " " + hex;
    }

    static String unquoted(String word) throws Exception {
        return URLDecoder.decode(word, "UTF-8");
    }

    static final class Context implements EvaluationContext {
        private final Map<String, ?> properties;
        private String packed;

        private Context(Map<String, ?> properties) {
            this.properties = properties;
        }

        /** The same, out of the property string. */
        Context parsed() {
            return new Context(MessageDecoder.string2messageProperties(packed));
        }

        Context(String[] words) throws Exception {
            Map<String, String> pairs = new HashMap<>();
            for (int at = 1; at + 1 < words.length; at += 2) {
                pairs.put(unquoted(words[at]), unquoted(words[at + 1]));
            }
            properties = pairs;
            StringBuilder text = new StringBuilder();
            pairs.forEach((name, value) -> text.append(name).append('\1').append(value).append('\2'));
            packed = text.toString();
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
