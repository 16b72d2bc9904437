import java.util.Map;

/** Writes maps, iterables, strings, numbers, booleans and null; all but ASCII escaped. */
final class Json {
    private Json() {
    }

    static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            writeMap(out, (Map<?, ?>) value);
        } else if (value instanceof Iterable) {
            writeList(out, (Iterable<?>) value);
        } else {
            writeText(out, value.toString());
        }
    }

    private static void writeMap(StringBuilder out, Map<?, ?> map) {
        String separator = "{";
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            out.append(separator);
            writeText(out, String.valueOf(entry.getKey()));
            out.append(": ");
            write(out, entry.getValue());
            separator = ",\n";
        }
        out.append(map.isEmpty() ? "{}" : "}");
    }

    private static void writeList(StringBuilder out, Iterable<?> list) {
        String separator = "";
        out.append('[');
        for (Object item : list) {
            out.append(separator);
            write(out, item);
            separator = ", ";
        }
        out.append(']');
    }

    private static void writeText(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
