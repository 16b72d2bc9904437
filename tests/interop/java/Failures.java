import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** The response code and the broker's words inside a client exception. */
final class Failures {
    private Failures() {
    }

    /** The exception itself or its nearest cause that carries a broker's code; null when none does. */
    static Throwable withCode(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                return cause;
            }
        }
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQClientException) {
                return cause;
            }
        }
        return null;
    }

    static int code(Throwable failure) {
        return failure instanceof MQBrokerException
            ? ((MQBrokerException) failure).getResponseCode()
            : ((MQClientException) failure).getResponseCode();
    }

    static String remark(Throwable failure) {
        String remark = failure instanceof MQBrokerException
            ? ((MQBrokerException) failure).getErrorMessage()
            : ((MQClientException) failure).getErrorMessage();
        return remark == null ? failure.getMessage() : remark;
    }
}
