package io.penstock.bench;

import io.penstock.thrift.Credential;
import io.penstock.thrift.Durability;
import io.penstock.thrift.Message;
import io.penstock.thrift.Producer;
import io.penstock.thrift.SendRequest;
import io.penstock.thrift.SendResult;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.layered.TFramedTransport;

/** Penstock's producer proxy by the stock Thrift library: one connection per thread, whatever Options.clients says. */
final class PenstockTarget implements Target {
    private static final long MINT_EVERY_NS = 60_000_000_000L; // it is good for 300 s
    private static final int STORED_MAX = 99; // codes 0xx: stored

    private final Options options;
    private final List<TFramedTransport> connections = new ArrayList<>();

    PenstockTarget(Options options) {
        this.options = options; // bench/peers has made the topics and the application
    }

    @Override
    public Sender sender(int thread) throws Exception {
        String[] place = options.servers().split(":");
        TFramedTransport connection = new TFramedTransport(new TSocket(place[0], Integer.parseInt(place[1])));
        connection.open();
        connections.add(connection);
        return new Caller(new Producer.Client(new TBinaryProtocol(connection)), new Bodies(options, thread));
    }

    @Override
    public void close() {
        connections.forEach(TFramedTransport::close);
    }

    private final class Caller implements Sender {
        private final Producer.Client client;
        private final Bodies bodies;
        private Credential credential;
        private long mintedNs;

        Caller(Producer.Client client, Bodies bodies) {
            this.client = client;
            this.bodies = bodies;
        }

        @Override
        public void call() throws Exception {
            if (credential == null || System.nanoTime() - mintedNs > MINT_EVERY_NS) {
                credential = mint();
                mintedNs = System.nanoTime();
            }
            List<Message> messages = new ArrayList<>(options.batch());
            for (int i = 0; i < options.batch(); i++)
                messages.add(new Message(options.topic(bodies.topic())).setBody(bodies.body));
            SendRequest request = new SendRequest(credential, messages).setDurability(options.copies() > 1 ? Durability.REPLICATED : Durability.MEMORY);
            for (SendResult result : client.send(request).getResults())
                if (result.getCode().getValue() > STORED_MAX) throw new IllegalStateException(result.getCode() + ": " + result.getError());
        }
    }

    /** From the environment: other users can read the command line. */
    private static Credential mint() throws Exception {
        String app = System.getenv("PENSTOCK_APP"), key = System.getenv("PENSTOCK_KEY_ID");
        long nowMs = System.currentTimeMillis();
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(System.getenv("PENSTOCK_SECRET").getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        byte[] signature = mac.doFinal(("penstock/1\n" + app + "\n" + key + "\n" + nowMs).getBytes(StandardCharsets.UTF_8));
        return new Credential(app, key, nowMs, ByteBuffer.wrap(signature));
    }
}
