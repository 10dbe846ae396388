package io.penstock.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo;

/**
 * RocketMQ by its remoting client. Options.servers is the name server, and behind a comma the controller of a group with replicas.
 * A batch goes to one topic and one queue: that is all that its protocol can say.
 */
final class RocketmqTarget implements Target {
    private static final String TEMPLATE_TOPIC = "TBW102"; // new topics are made on the brokers that carry this one
    private static final long READY_TIMEOUT_NS = 60_000_000_000L;

    private final Options options;
    private final List<DefaultMQProducer> producers = new ArrayList<>();

    RocketmqTarget(Options options) throws Exception {
        this.options = options;
        for (int i = 0; i < options.clients(); i++) {
            DefaultMQProducer producer = new DefaultMQProducer("bench-" + i);
            producer.setNamesrvAddr(options.servers().split(",")[0]);
            producer.setInstanceName("bench-" + i); // or all of them would share one connection
            producer.start();
            producers.add(producer);
        }
        createTopics(options, producers);
    }

    /** The broker tells the name server of itself, and the name server the clients, some time after each says that it is up. */
    static void createTopics(Options options, List<DefaultMQProducer> producers) throws Exception {
        long deadline = System.nanoTime() + READY_TIMEOUT_NS;
        for (int i = 0; i < options.topics(); ) {
            try {
                producers.get(0).createTopic(TEMPLATE_TOPIC, options.topic(i), options.queues(), Map.of());
                for (DefaultMQProducer producer : producers) require(producer.send(new Message(options.topic(i), new byte[options.size()])));
                i++;
            } catch (Exception fault) {
                if (System.nanoTime() > deadline) throw fault;
                Thread.sleep(200);
            }
        }
    }

    @Override
    public Sender sender(int thread) {
        DefaultMQProducer producer = producers.get(thread % producers.size());
        Bodies bodies = new Bodies(options, thread);
        if (options.batch() == 1) return () -> require(producer.send(new Message(options.topic(bodies.topic()), bodies.body)));
        return () -> {
            String topic = options.topic(bodies.topic());
            List<Message> batch = new ArrayList<>(options.batch());
            for (int i = 0; i < options.batch(); i++) batch.add(new Message(topic, bodies.body));
            require(producer.send(batch));
        };
    }

    /** A thread to a topic, for a pop asks one; there must be as many threads as topics, or more. */
    @Override
    public Taker taker(int number) throws Exception {
        MQClientInstance client = producers.get(number % producers.size()).getDefaultMQProducerImpl().getMqClientFactory();
        String topic = options.topic(number % options.topics());
        String broker = producers.get(0).fetchPublishMessageQueues(topic).get(0).getBrokerName();
        String address = client.findBrokerAddressInPublish(broker);
        return new RocketmqTaker(client.getMQClientAPIImpl(), broker, address, topic, options.most());
    }

    @Override
    public String leadership() throws Exception {
        MQClientInstance client = producers.get(0).getDefaultMQProducerImpl().getMqClientFactory();
        String broker = producers.get(0).fetchPublishMessageQueues(options.topic(0)).get(0).getBrokerName();
        String controller = options.servers().split(",")[1];
        BrokerReplicasInfo.ReplicasInfo group =
                client.getMQClientAPIImpl().getInSyncStateData(controller, List.of(broker)).getReplicasInfoTable().get(broker);
        return group.getMasterAddress() == null ? "- 0" : group.getMasterAddress() + " " + group.getInSyncReplicas().size();
    }

    private static void require(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException(result.getSendStatus().name());
    }

    @Override
    public void close() {
        producers.forEach(DefaultMQProducer::shutdown);
    }
}
