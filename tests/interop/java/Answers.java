import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * What a client saw, scenario by scenario and step by step. Ids, addresses and the run's topic prefix are replaced by
 * names, so that two runs of equal behaviour write equal files.
 */
final class Answers {
    private static final Pattern ADDRESS = Pattern.compile("\\d+\\.\\d+\\.\\d+\\.\\d+:\\d+");
    private static final Pattern ID = Pattern.compile("\\b([0-9A-F]{56}|[0-9A-F]{32})\\b");

    /** A broker that answers with a Java exception: its text is no promise to anybody. */
    private static final Pattern EXCEPTION = Pattern.compile("^(\\w+\\.)+\\w*(Exception|Error)\\b.*", Pattern.DOTALL);

    private final Map<String, Object> scenarios = Collections.synchronizedMap(new LinkedHashMap<>());
    private final Map<String, String> names = new LinkedHashMap<>();

    Answers(String namesrv, String brokerAddr, String prefix) {
        names.put(namesrv, "<namesrv>");
        names.put(brokerAddr, "<broker>");
        names.put(prefix, "");
    }

    Steps scenario(String name) {
        Steps steps = new Steps();
        scenarios.put(name, steps.answers);
        return steps;
    }

    void write(String file) throws IOException {
        StringBuilder out = new StringBuilder();
        Json.write(out, scenarios);
        Files.write(Paths.get(file), out.append('\n').toString().getBytes(StandardCharsets.UTF_8));
    }

    String clean(String text) {
        if (text == null) {
            return null;
        }
        for (Map.Entry<String, String> name : names.entrySet()) {
            text = text.replace(name.getKey(), name.getValue());
        }
        text = ADDRESS.matcher(text).replaceAll("<address>");
        text = ID.matcher(text).replaceAll("<id>");
        text = EXCEPTION.matcher(text).replaceAll("<exception>");
        int end = text.indexOf('\n');
        return end < 0 ? text : text.substring(0, end);
    }

    Map<String, String> clean(Map<String, String> texts) {
        Map<String, String> cleaned = new TreeMap<>();
        if (texts != null) {
            texts.forEach((name, value) -> cleaned.put(name, clean(value)));
        }
        return cleaned;
    }

    interface Action {
        Object run() throws Throwable;
    }

    final class Steps {
        private final Map<String, Object> answers = Collections.synchronizedMap(new LinkedHashMap<>());

        /** Runs one step; its value, or the way it failed, is the answer. */
        void step(String name, Action action) {
            Object answer;
            try {
                answer = action.run();
            } catch (Throwable failure) {
                answer = failed(failure);
            }
            if (answers.put(name, answer) != null) {
                throw new IllegalStateException("two steps named " + name);
            }
        }

        /** The same for a step that occurs more than once: later ones are numbered. */
        void stepAgain(String name, Action action) {
            String free = name;
            for (int n = 2; answers.containsKey(free); n++) {
                free = name + " (" + n + ")";
            }
            step(free, action);
        }

        Map<String, Object> failed(Throwable failure) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("failure", failure.getClass().getSimpleName());
            Throwable cause = Failures.withCode(failure);
            if (cause != failure && cause != null) {
                answer.put("cause", cause.getClass().getSimpleName());
            }
            if (cause != null) {
                answer.put("code", Failures.code(cause));
                answer.put("remark", clean(Failures.remark(cause)));
            }
            return answer;
        }
    }

    static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }
}
