package io.penstock.bench;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka with acks=1: the answer comes when the leader's page cache has the record. With copies the client library's defaults: acks=all,
 * an idempotent producer that sends again for two minutes.
 */
final class KafkaTarget implements Target {
    private static final Duration POLL = Duration.ofMillis(100);

    private final Options options;
    private final String[] topics;
    private final List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
    private final Admin admin;

    KafkaTarget(Options options) throws Exception {
        this.options = options;
        topics = IntStream.range(0, options.topics()).mapToObj(options::topic).toArray(String[]::new);
        admin = Admin.create(Map.of("bootstrap.servers", options.servers()));
        createTopics();
        for (int i = 0; i < options.clients(); i++) producers.add(new KafkaProducer<>(settings()));
        for (String topic : topics) producers.forEach(producer -> producer.partitionsFor(topic));
    }

    private void createTopics() throws Exception {
        for (String topic : topics) {
            try {
                admin.createTopics(List.of(new NewTopic(topic, options.queues(), (short) options.copies()))).all().get();
            } catch (ExecutionException fault) {
                if (!(fault.getCause() instanceof TopicExistsException)) throw fault;
            }
        }
    }

    private Map<String, Object> settings() {
        Map<String, Object> settings = new HashMap<>(Map.of(
                "bootstrap.servers", options.servers(),
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "acks", options.copies() > 1 ? "all" : "1",
                "enable.idempotence", options.copies() > 1, // it needs acks=all
                // A caller that waits for each answer gains nothing from lingering; pipelined, the default of 5 ms stays.
                "linger.ms", options.loop().equals("pipelined") ? 5 : 0));
        if (options.patienceMs() > 0) settings.put("request.timeout.ms", options.patienceMs());
        return settings;
    }

    @Override
    public String leadership() throws Exception {
        TopicPartitionInfo first = admin.describeTopics(List.of(topics[0])).allTopicNames().get(5, TimeUnit.SECONDS).get(topics[0]).partitions().get(0);
        return first.leader() == null ? "- 0" : first.leader().id() + " " + first.isr().size();
    }

    @Override
    public Sender sender(int thread) {
        KafkaProducer<byte[], byte[]> producer = producers.get(thread % producers.size());
        Bodies bodies = new Bodies(options, thread);
        return new Sender() {
            @Override
            public void call() throws Exception {
                producer.send(record()).get();
            }

            @Override
            public void start(Done done) {
                producer.send(record(), (metadata, fault) -> done.ended(fault));
            }

            private ProducerRecord<byte[], byte[]> record() {
                return new ProducerRecord<>(topics[bodies.topic()], bodies.body);
            }
        };
    }

    /** A member of one group, with the library's own commit every 5 s. It is made by one thread and used by another, never by two at once. */
    @Override
    public Taker taker(int number) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", options.servers(),
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "group.id", "bench-readers",
                "auto.offset.reset", "earliest",
                "max.poll.records", options.most()));
        consumer.subscribe(List.of(topics));
        return new Taker() {
            @Override
            public int take() {
                return consumer.poll(POLL).count();
            }

            @Override
            public void close() {
                consumer.close();
            }
        };
    }

    @Override
    public void close() {
        producers.forEach(KafkaProducer::close);
        admin.close();
    }
}
