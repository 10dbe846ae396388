package io.penstock.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** RocketMQ's gRPC proxy by its own client. Options.servers is the name server, which makes the topics, and behind a comma the proxy. */
final class RocketmqProxyTarget implements Target {
    private static final ClientServiceProvider LIBRARY = ClientServiceProvider.loadService();

    private final Options options;
    private final List<Producer> producers = new ArrayList<>();

    RocketmqProxyTarget(Options options) throws Exception {
        this.options = options;
        String[] places = options.servers().split(",");
        DefaultMQProducer maker = new DefaultMQProducer("bench-maker");
        maker.setNamesrvAddr(places[0]);
        maker.start();
        RocketmqTarget.createTopics(options, List.of(maker));
        maker.shutdown();
        ClientConfiguration settings = ClientConfiguration.newBuilder().setEndpoints(places[1]).enableSsl(false).build();
        String[] topics = IntStream.range(0, options.topics()).mapToObj(options::topic).toArray(String[]::new);
        for (int i = 0; i < options.clients(); i++)
            producers.add(LIBRARY.newProducerBuilder().setClientConfiguration(settings).setTopics(topics).build());
    }

    @Override
    public Sender sender(int thread) {
        Producer producer = producers.get(thread % producers.size());
        Bodies bodies = new Bodies(options, thread);
        return () -> producer.send(
                LIBRARY.newMessageBuilder().setTopic(options.topic(bodies.topic())).setBody(bodies.body).build());
    }

    @Override
    public void close() throws Exception {
        for (Producer producer : producers) producer.close();
    }
}
