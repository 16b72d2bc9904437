import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Whole answers of an admin call, field by field, as maps and lists that two runs share: times and rates are named,
 * not shown, and what has no order is sorted.
 */
final class Beans {
    private static final long A_TIME = 1_000_000_000_000L;
    private static final int DEPTH = 8;

    private final Answers answers;

    Beans(Answers answers) {
        this.answers = answers;
    }

    Object view(Object value) throws Exception {
        return view(value, 0);
    }

    private Object view(Object value, int depth) throws Exception {
        if (depth > DEPTH) {
            throw new IllegalStateException("nested too deeply: " + value.getClass());
        }
        if (value == null || value instanceof Boolean) {
            return value;
        }
        if (value instanceof Number) {
            return number((Number) value);
        }
        if (value instanceof Map) {
            Map<String, Object> view = new TreeMap<>();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                view.put(key(entry.getKey()), view(entry.getValue(), depth + 1));
            }
            return view;
        }
        if (value instanceof Collection) {
            return list((Collection<?>) value, depth);
        }
        if (value.getClass().isArray()) {
            return Array.getLength(value) + " items";
        }
        if (value instanceof CharSequence || value instanceof Enum) {
            return answers.clean(value.toString());
        }
        return value instanceof MessageQueue ? key(value) : bean(value, depth);
    }

    private static Object number(Number value) {
        boolean changing = value instanceof Double || value instanceof Float || Math.abs(value.longValue()) > A_TIME;
        return changing ? "<n>" : value;
    }

    private String key(Object key) {
        if (key instanceof MessageQueue) {
            MessageQueue queue = (MessageQueue) key;
            return answers.clean(queue.getTopic()) + "/" + queue.getBrokerName() + "/" + queue.getQueueId();
        }
        return answers.clean(String.valueOf(key));
    }

    private List<Object> list(Collection<?> items, int depth) throws Exception {
        List<Object> views = new ArrayList<>();
        for (Object item : items) {
            views.add(view(item, depth + 1));
        }
        views.sort(Comparator.comparing(String::valueOf));
        return views;
    }

    private Map<String, Object> bean(Object value, int depth) throws Exception {
        Map<String, Object> view = new TreeMap<>();
        for (Method method : value.getClass().getMethods()) {
            String name = property(method);
            if (name != null) {
                try {
                    view.put(name, name.equals("spentTimeMills") ? "<n>" : view(method.invoke(value), depth + 1));
                } catch (InvocationTargetException unreadable) {
                    view.put(name, unreadable.getCause().getClass().getSimpleName());
                }
            }
        }
        return view;
    }

    private static String property(Method method) {
        String name = method.getName();
        if (method.getParameterCount() > 0 || Modifier.isStatic(method.getModifiers()) || name.equals("getClass")
            || method.getReturnType() == void.class) {
            return null;
        }
        if (name.startsWith("get") && name.length() > 3) {
            return name.substring(3, 4).toLowerCase() + name.substring(4);
        }
        return name.startsWith("is") && name.length() > 2 ? name.substring(2, 3).toLowerCase() + name.substring(3) : null;
    }
}
