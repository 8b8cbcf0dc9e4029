package dueline.contract;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/**
 * One delivery of one try of a task.
 *
 * @param source the instance it comes from
 * @param keyHash what to deduplicate by
 * @param attempt failed attempts before this one
 * @param delivery above 1 it may be a duplicate
 * @param dueAt the deadline as asked for
 * @param traceparent W3C trace context, or null
 * @param payload what the task was scheduled with; missing when it has none
 */
public record Task(
        String source, long taskId, String kind, String key, String keyHash, int generation, int attempt,
        int delivery, Instant dueAt, Instant claimedAt, String traceparent, JsonNode payload) {

    /** The version of the contract that is understood here. */
    public static final int VERSION = 1;

    static final String TYPE = "dueline.task.due";
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Reads a record. */
    public static Task read(Headers headers, byte[] value) throws NotATask, NewerVersion {
        int version = (int) number(headers, "ce_duelineversion", Integer.MAX_VALUE);
        if (version > VERSION) {
            throw new NewerVersion(version);
        }
        if (!text(headers, "ce_type").equals(TYPE)) {
            throw new NotATask("header ce_type is not " + TYPE);
        }
        String keyHash = text(headers, "ce_keyhash");
        if (!keyHash.matches("[0-9a-fA-F]{32}")) {
            throw new NotATask("header ce_keyhash is not 32 hexadecimal digits");
        }
        return new Task(
                text(headers, "ce_source"),
                number(headers, "ce_taskid", Long.MAX_VALUE),
                text(headers, "ce_kind"),
                text(headers, "ce_subject"),
                keyHash,
                (int) number(headers, "ce_generation", Integer.MAX_VALUE),
                (int) number(headers, "ce_attempt", Integer.MAX_VALUE),
                (int) number(headers, "ce_delivery", Integer.MAX_VALUE),
                instant(headers, "ce_time"),
                instant(headers, "ce_claimedat"),
                headers.lastHeader("traceparent") == null ? null : text(headers, "traceparent"),
                json(value));
    }

    private static String text(Headers headers, String name) throws NotATask {
        // Of two headers of one name the last counts.
        Header header = headers.lastHeader(name);
        if (header == null || header.value() == null) {
            throw new NotATask("header " + name + " is missing");
        }
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(header.value())).toString();
        } catch (CharacterCodingException notText) {
            throw new NotATask("header " + name + " is no text");
        }
    }

    private static long number(Headers headers, String name, long most) throws NotATask {
        String text = text(headers, name);
        try {
            long number = Long.parseLong(text);
            if (number >= 0 && number <= most) {
                return number;
            }
        } catch (NumberFormatException notANumber) {
            // said below
        }
        throw new NotATask("header " + name + " is no number in range");
    }

    private static Instant instant(Headers headers, String name) throws NotATask {
        try {
            return Instant.parse(text(headers, name));
        } catch (DateTimeParseException notAnInstant) {
            throw new NotATask("header " + name + " is no instant");
        }
    }

    private static JsonNode json(byte[] value) throws NotATask {
        if (value == null) {
            return MissingNode.getInstance();
        }
        try {
            return JSON.readTree(value);
        } catch (IOException notJson) {
            throw new NotATask("the value is not JSON");
        }
    }
}
