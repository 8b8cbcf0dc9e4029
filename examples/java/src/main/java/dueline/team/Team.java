package dueline.team;

import dueline.contract.NewerVersion;
import dueline.contract.NotATask;
import dueline.contract.Outcome;
import dueline.contract.Task;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A downstream team: charges accounts when dueline says that it is time.
 *
 * <p>It shares nothing with dueline but the broker. Its own database remembers which keys it has handled, in the same
 * transaction as the charge: a message that comes twice has one effect.
 *
 * <p>{@code Team --brokers=… --prefix=dueline --queue=billing --tiers=10s,1m --group=billing-team --ledger=ledger.db}
 */
public final class Team implements AutoCloseable {
    private static final String SOURCE = "/billing-team";

    private final String outcomes;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<String, byte[]> producer;
    private final Ledger ledger;

    private Team(Map<String, String> options, Ledger ledger) {
        this.ledger = ledger;
        String queue = options.get("prefix") + "." + options.get("queue");
        outcomes = queue + ".outcomes";
        consumer = new KafkaConsumer<>(
                Map.of(
                        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("brokers"),
                        ConsumerConfig.GROUP_ID_CONFIG, options.get("group"),
                        ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                        ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                        ConsumerConfig.PARTITION_ASSIGNMENT_STRATEGY_CONFIG,
                                CooperativeStickyAssignor.class.getName(),
                        // Another member takes over a dead one's partitions after so long.
                        ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6_000),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
        // Idempotent, and acknowledged by all replicas: the client's defaults.
        producer = new KafkaProducer<>(
                Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("brokers")),
                new StringSerializer(),
                new ByteArraySerializer());
        consumer.subscribe(Stream.of(options.get("tiers").split(",")).map(tier -> queue + "." + tier).toList());
    }

    /** Handles until somebody wakes the consumer. */
    private void run() throws Exception {
        try {
            while (true) {
                answer(consumer.poll(Duration.ofMillis(500)));
            }
        } catch (WakeupException stopped) {
            // Asked to stop; what is not committed comes again.
        }
    }

    /** Offsets pass only what the broker has acknowledged an outcome of. */
    private void answer(Iterable<ConsumerRecord<byte[], byte[]>> records) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> passed = new HashMap<>();
        Map<TopicPartition, Long> left = new HashMap<>();
        for (var record : records) {
            var partition = new TopicPartition(record.topic(), record.partition());
            if (left.containsKey(partition)) {
                continue; // behind a message that is left where it is
            }
            try {
                Task task = Task.read(record.headers(), record.value());
                Outcome outcome = handle(task);
                String id = String.join("-", "" + task.taskId(), "" + task.generation(), "" + task.attempt(),
                        outcome.outcome());
                sent.add(producer.send(outcome.about(task, outcomes, id, SOURCE)));
            } catch (NotATask broken) {
                System.err.println(partition + " " + record.offset() + ": " + broken.getMessage());
            } catch (NewerVersion newer) {
                System.err.println(partition + " " + record.offset() + ": " + newer.getMessage());
                left.put(partition, record.offset());
                continue;
            }
            passed.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        for (Future<?> outcome : sent) {
            try {
                outcome.get();
            } catch (ExecutionException lost) {
                // Nothing is committed: the messages come again, and the ledger knows what was done.
                throw new IllegalStateException("an outcome was not acknowledged", lost.getCause());
            }
        }
        left.forEach(consumer::seek);
        if (!passed.isEmpty()) {
            consumer.commitSync(passed);
        }
    }

    /** One task to one outcome. */
    private Outcome handle(Task task) throws SQLException {
        if (task.payload().path("cents").asLong(-1) == 0) {
            return Outcome.skipped();
        }
        try {
            ledger.once(task);
            return Outcome.done();
        } catch (Ledger.Refused refused) {
            return Outcome.dead(refused.getMessage());
        } catch (Ledger.Busy busy) {
            return Outcome.retry(busy.getMessage(), null);
        }
    }

    @Override
    public void close() {
        consumer.close();
        producer.close();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.replaceFirst("^--", "").split("=", 2);
            options.put(parts[0], parts.length == 2 ? parts[1] : "");
        }
        try (var ledger = new Ledger(options.get("ledger"))) {
            if (options.containsKey("charges")) {
                ledger.printCharges();
                return;
            }
            var ended = new CountDownLatch(1);
            try (var team = new Team(options, ledger)) {
                Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                    team.consumer.wakeup();
                    try {
                        ended.await();
                    } catch (InterruptedException impatient) {
                        Thread.currentThread().interrupt();
                    }
                }));
                team.run();
            } finally {
                ended.countDown();
            }
        }
    }
}
