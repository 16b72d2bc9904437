import java.lang.reflect.Method;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Signs with the credentials that the system properties `interop.accessKey` and `interop.secretKey` name; without
 * them nothing is signed. Apache's classes for it are found by name: programs are compiled against clients, and not
 * every client brings them.
 */
final class Credentials {
    private static final String ACCESS_KEY = System.getProperty("interop.accessKey");
    private static final String SECRET_KEY = System.getProperty("interop.secretKey");
    private static final String PACKAGE = "org.apache.rocketmq.acl.common.";

    private Credentials() {
    }

    /** Null without credentials: then a client is made as if there were none. */
    static RPCHook hook() throws Exception {
        if (ACCESS_KEY == null) {
            return null;
        }
        Class<?> pair = Class.forName(PACKAGE + "SessionCredentials");
        Object credentials = pair.getConstructor(String.class, String.class).newInstance(ACCESS_KEY, SECRET_KEY);
        return new Signer((RPCHook) Class.forName(PACKAGE + "AclClientRPCHook").getConstructor(pair).newInstance(credentials));
    }

    /** Apache's hook, but for requests that no class describes: before 4.9.4 it signs none of their fields. */
    private static final class Signer implements RPCHook {
        private final RPCHook apaches;
        private final Method content;
        private final Method signature;

        Signer(RPCHook apaches) throws ReflectiveOperationException {
            this.apaches = apaches;
            Class<?> utils = Class.forName(PACKAGE + "AclUtils");
            content = utils.getMethod("combineRequestContent", RemotingCommand.class, SortedMap.class);
            signature = utils.getMethod("calSignature", byte[].class, String.class);
        }

        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            if (request.readCustomHeader() != null) {
                apaches.doBeforeRequest(address, request);
                return;
            }
            TreeMap<String, String> fields = new TreeMap<>();
            if (request.getExtFields() != null) {
                fields.putAll(request.getExtFields());
            }
            fields.put("AccessKey", ACCESS_KEY);
            request.addExtField("AccessKey", ACCESS_KEY);
            request.addExtField("Signature", sign(request, fields));
        }

        private String sign(RemotingCommand request, TreeMap<String, String> fields) {
            try {
                return (String) signature.invoke(null, content.invoke(null, request, fields), SECRET_KEY);
            } catch (ReflectiveOperationException failure) {
                throw new IllegalStateException(failure);
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
            // answers are not signed
        }
    }
}
