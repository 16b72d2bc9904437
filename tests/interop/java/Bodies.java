import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Random;

/** Message bodies and batch bodies, always the same ones. */
final class Bodies {
    private Bodies() {
    }

    /** Text that compresses well. */
    static byte[] text(int length) {
        byte[] body = new byte[length];
        byte[] line = "the quick brown fox jumps over the lazy dog\n".getBytes(StandardCharsets.US_ASCII);
        for (int i = 0; i < length; i++) {
            body[i] = line[i % line.length];
        }
        return body;
    }

    /** Bytes that do not compress. */
    static byte[] noise(int length) {
        byte[] body = new byte[length];
        new Random(length).nextBytes(body);
        return body;
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** One record of a batch request: size, magic, crc, flag, body, properties. */
    static byte[] batchRecord(byte[] body, String properties) {
        byte[] text = utf8(properties);
        ByteBuffer record = ByteBuffer.allocate(22 + body.length + text.length);
        record.putInt(record.capacity()).putInt(0).putInt(0).putInt(0);
        record.putInt(body.length).put(body).putShort((short) text.length).put(text);
        return record.array();
    }

    static String repeat(char c, int length) {
        char[] text = new char[length];
        Arrays.fill(text, c);
        return new String(text);
    }
}
