package dueline.contract;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Headers;

/**
 * What became of one try.
 *
 * @param reason needed by retry and dead, else null
 * @param retryAfter with retry: the least pause before the next try; or null
 */
public record Outcome(String outcome, String reason, Duration retryAfter) {

    static final String TYPE = "dueline.task.outcome";
    private static final Duration LONGEST_PAUSE = Duration.ofDays(7);
    private static final ObjectMapper JSON = new ObjectMapper();

    public Outcome {
        boolean failed = outcome.equals("retry") || outcome.equals("dead");
        if (failed && (reason == null || reason.isBlank())) {
            throw new IllegalArgumentException(outcome + " needs a reason");
        }
        if (retryAfter != null
                && (!outcome.equals("retry") || retryAfter.isNegative() || retryAfter.compareTo(LONGEST_PAUSE) > 0)) {
            throw new IllegalArgumentException("retryAfter is 0 to 7 days, with retry only");
        }
    }

    /** The effect happened, now or before. */
    public static Outcome done() {
        return new Outcome("done", null, null);
    }

    /** There was nothing to do any more. */
    public static Outcome skipped() {
        return new Outcome("skipped", null, null);
    }

    /** It is still being worked on: another lease, please. */
    public static Outcome working() {
        return new Outcome("working", null, null);
    }

    /** It may work later. */
    public static Outcome retry(String reason, Duration after) {
        return new Outcome("retry", reason, after);
    }

    /** It can never work. */
    public static Outcome dead(String reason) {
        return new Outcome("dead", reason, null);
    }

    /**
     * The record that says so. Keyed by the task's key, so that outcomes of one key keep their order.
     *
     * @param id the sender's own, the same whenever this outcome is sent again
     * @param source who the sender is, a URI reference
     */
    public ProducerRecord<String, byte[]> about(Task task, String topic, String id, String source) {
        var record = new ProducerRecord<>(topic, task.key(), body());
        Headers headers = record.headers();
        add(headers, "ce_specversion", "1.0");
        add(headers, "ce_id", id);
        add(headers, "ce_source", source);
        add(headers, "ce_type", TYPE);
        add(headers, "ce_duelineversion", Task.VERSION);
        add(headers, "ce_instance", task.source());
        add(headers, "ce_taskid", task.taskId());
        add(headers, "ce_keyhash", task.keyHash());
        add(headers, "ce_generation", task.generation());
        add(headers, "ce_attempt", task.attempt());
        add(headers, "content-type", "application/json");
        return record;
    }

    byte[] body() {
        ObjectNode body = JSON.createObjectNode().put("outcome", outcome);
        if (reason != null) {
            body.put("reason", reason);
        }
        if (retryAfter != null) {
            body.put("retry_after_ms", retryAfter.toMillis());
        }
        return body.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static void add(Headers headers, String name, Object value) {
        headers.add(name, value.toString().getBytes(StandardCharsets.UTF_8));
    }
}
