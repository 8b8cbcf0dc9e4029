package dueline.contract;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import io.cloudevents.kafka.KafkaMessageFactory;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The contract's golden vectors, and that messages are CloudEvents by the official SDK. */
class VectorsTest {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static Stream<JsonNode> vectors(String name, String member) throws IOException {
        var path = Path.of("../../docs/contract/vectors", name + ".json").toFile();
        JsonNode found = JSON.readTree(path).get(member);
        assertFalse(found.isEmpty());
        return StreamSupport.stream(found.spliterator(), false);
    }

    static Stream<JsonNode> validTasks() throws IOException {
        return vectors("task", "valid");
    }

    static Stream<JsonNode> brokenTasks() throws IOException {
        return vectors("task", "invalid");
    }

    static Stream<JsonNode> writtenOutcomes() throws IOException {
        return vectors("outcome", "valid").filter(vector -> vector.get("writes").asBoolean());
    }

    static Stream<JsonNode> messages() throws IOException {
        return Stream.concat(vectors("task", "valid"), vectors("outcome", "valid"));
    }

    static Stream<JsonNode> partitions() throws IOException {
        return vectors("partition", "vectors");
    }

    static Stream<JsonNode> keyHashes() throws IOException {
        return vectors("key-hash", "vectors");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Headers headers(JsonNode vector) {
        var headers = new RecordHeaders();
        vector.at("/record/headers").forEach(pair -> headers.add(pair.get(0).asText(), bytes(pair.get(1).asText())));
        return headers;
    }

    private static byte[] value(JsonNode vector) {
        JsonNode value = vector.at("/record/value");
        return value.isNull() ? null : bytes(value.asText());
    }

    @ParameterizedTest
    @MethodSource("validTasks")
    void taskMessagesReadAsTheVectorsSay(JsonNode vector) throws Exception {
        JsonNode reads = vector.get("reads");
        Task task = Task.read(headers(vector), value(vector));
        assertEquals(reads.get("source").asText(), task.source());
        assertEquals(reads.get("task_id").asLong(), task.taskId());
        assertEquals(reads.get("kind").asText(), task.kind());
        assertEquals(reads.get("key").asText(), task.key());
        assertEquals(reads.get("key_hash").asText(), task.keyHash());
        assertEquals(reads.get("generation").asInt(), task.generation());
        assertEquals(reads.get("attempt").asInt(), task.attempt());
        assertEquals(reads.get("delivery").asInt(), task.delivery());
        assertEquals(Instant.parse(reads.get("due_at").asText()), task.dueAt());
        assertEquals(Instant.parse(reads.get("claimed_at").asText()), task.claimedAt());
        assertEquals(reads.get("traceparent").asText(null), task.traceparent());
    }

    @ParameterizedTest
    @MethodSource("brokenTasks")
    void brokenTaskMessagesAreRefused(JsonNode vector) {
        boolean newer = vector.get("error").asText().equals("newer");
        Class<? extends Exception> expected = newer ? NewerVersion.class : NotATask.class;
        Exception refused = assertThrows(expected, () -> Task.read(headers(vector), value(vector)));
        assertTrue(newer || refused.getMessage().contains(vector.get("header").asText()), refused.getMessage());
    }

    @ParameterizedTest
    @MethodSource("writtenOutcomes")
    void outcomesAreWrittenAsTheVectorsSay(JsonNode vector) {
        JsonNode reads = vector.get("reads");
        JsonNode after = reads.get("retry_after_ms");
        var outcome = new Outcome(
                reads.get("outcome").asText(),
                reads.get("reason").asText(null),
                after.isNull() ? null : Duration.ofMillis(after.asLong()));
        var task = new Task(
                reads.get("instance").asText(), reads.get("task_id").asLong(), "close_order", "1001",
                reads.get("key_hash").asText(), reads.get("generation").asInt(), reads.get("attempt").asInt(), 1,
                Instant.EPOCH, Instant.EPOCH, null, MissingNode.getInstance());
        var record = outcome.about(task, "dueline.billing.outcomes", "o-1", "/billing");
        assertEquals(headers(vector), record.headers());
        assertArrayEquals(value(vector), record.value());
        assertEquals(vector.at("/record/key").asText(), record.key());
    }

    @ParameterizedTest
    @MethodSource("messages")
    void messagesAreCloudEvents(JsonNode vector) {
        var event = KafkaMessageFactory.createReader(headers(vector), value(vector)).toEvent();
        assertTrue(event.getType().startsWith("dueline.task."));
        assertEquals(
                new String(headers(vector).lastHeader("ce_id").value(), StandardCharsets.UTF_8), event.getId());
    }

    @ParameterizedTest
    @MethodSource("partitions")
    void keysGoToTheClientsPartitions(JsonNode vector) {
        int partition = BuiltInPartitioner.partitionForKey(
                bytes(vector.get("key").asText()), vector.get("partitions").asInt());
        assertEquals(vector.get("partition").asInt(), partition);
    }

    @ParameterizedTest
    @MethodSource("keyHashes")
    void keyHashesAreOfQueueKindAndKey(JsonNode vector) throws Exception {
        var sha = MessageDigest.getInstance("SHA-256");
        for (String part : new String[] {"queue", "kind", "key"}) {
            byte[] bytes = bytes(vector.get(part).asText());
            sha.update(ByteBuffer.allocate(4).putInt(bytes.length).array());
            sha.update(bytes);
        }
        String hash = HexFormat.of().formatHex(sha.digest(), 0, 16);
        assertEquals(vector.get("key_hash").asText(), hash);
    }
}
