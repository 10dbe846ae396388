import static java.nio.charset.StandardCharsets.UTF_8;

import io.penstock.thrift.Ack;
import io.penstock.thrift.Consumer;
import io.penstock.thrift.Credential;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Message;
import io.penstock.thrift.Producer;
import io.penstock.thrift.PullRequest;
import io.penstock.thrift.PullResponse;
import io.penstock.thrift.SendRequest;
import io.penstock.thrift.SendResult;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.TTransport;
import org.apache.thrift.transport.layered.TFramedTransport;

/**
 * Sends three messages, pulls and acknowledges them: generated code and Apache Thrift's Java library, nothing of ours.
 *
 * <pre>Stub framed|buffered PRODUCER CONSUMER APP KEY_ID TOPIC GROUP        (secret: PENSTOCK_SECRET)</pre>
 */
public final class Stub {
  private static final byte[][] BODIES = {"one".getBytes(UTF_8), {0, -1, 10, -2}, {}};

  private static void check(boolean held, Object what) {
    if (!held) {
      System.err.println("wrong: " + what);
      System.exit(1);
    }
  }

  private static TProtocol connect(String at, String transport) throws Exception {
    String[] parts = at.split(":");
    TSocket socket = new TSocket(new TConfiguration(), parts[0], Integer.parseInt(parts[1]), 15_000, 5_000);
    TTransport wrapped = transport.equals("framed") ? new TFramedTransport(socket) : socket;
    wrapped.open();
    return new TBinaryProtocol(wrapped);
  }

  public static void main(String[] given) throws Exception {
    String transport = given[0], app = given[3], keyId = given[4], topic = given[5], group = given[6];
    long nowMs = System.currentTimeMillis();
    Mac mac = Mac.getInstance("HmacSHA256");
    mac.init(new SecretKeySpec(System.getenv("PENSTOCK_SECRET").getBytes(UTF_8), "HmacSHA256"));
    byte[] signature = mac.doFinal(("penstock/1\n" + app + "\n" + keyId + "\n" + nowMs).getBytes(UTF_8));
    Credential credential = new Credential(app, keyId, nowMs, ByteBuffer.wrap(signature));

    List<Message> messages = new ArrayList<>();
    for (byte[] body : BODIES) {
      Map<String, String> properties = Map.of("number", "" + messages.size());
      messages.add(new Message(topic).setKey("k").setBody(body).setProperties(properties));
    }
    messages.get(2).setId(topic + "-third");
    Producer.Client sender = new Producer.Client(connect(given[1], transport));
    List<SendResult> results = sender.send(new SendRequest(credential, messages)).getResults();
    check(results.size() == 3, results);
    for (int i = 0; i < 3; i++) {
      SendResult each = results.get(i);
      check(each.getCode() == 0 && each.isSetId() && each.isSetOffset() && each.getOffset() == i, each);
      check(each.getQueue() == results.get(0).getQueue(), "one key, one queue: " + each);
    }
    check(results.get(2).getId().equals(topic + "-third"), "the id that was sent along");

    Consumer.Client receiver = new Consumer.Client(connect(given[2], transport));
    PullRequest ask = new PullRequest(credential, group).setTopics(List.of(topic)).setMaxMessages(10).setWaitMs(10_000);
    List<Delivery> pulled = new ArrayList<>();
    while (pulled.size() < 3) {
      PullResponse response = receiver.pull(ask);
      check(response.getCode() == 0 && response.getDeliveriesSize() > 0, response);
      pulled.addAll(response.getDeliveries());
    }
    List<Ack> acks = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      Delivery each = pulled.get(i);
      SendResult result = results.get(i);
      Message message = each.getMessage();
      check(each.getId().equals(result.getId()) && each.getQueue() == result.getQueue(), "place of " + each);
      check(each.getOffset() == result.getOffset() && each.getAttempt() == 1, "offset and attempt of " + each);
      check(Math.abs(each.getStoredAtMs() - nowMs) < 60_000, "time of " + each);
      check(message.getTopic().equals(topic) && message.getKey().equals("k"), "topic and key of " + each);
      check(Arrays.equals(message.isSetBody() ? message.getBody() : new byte[0], BODIES[i]), "body of " + each);
      check(message.getProperties().equals(Map.of("number", "" + i)), "properties of " + each);
      acks.add(new Ack(ByteBuffer.wrap(each.getReceipt())));
    }
    PullResponse last = receiver.pull(
        new PullRequest(credential, group).setTopics(List.of(topic)).setMaxMessages(0).setAcks(acks));
    check(last.getCode() == 0 && last.getDeliveriesSize() == 0 && last.getAckResultsSize() == 3, last);
    last.getAckResults().forEach(each -> check(each.getCode() == 0, each));
    System.out.println("ok");
  }
}
