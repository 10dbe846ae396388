package io.penstock.examples;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.penstock.client.PenstockConsumer;
import io.penstock.client.PenstockProducer;
import io.penstock.client.SendOutcome;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Message;
import java.io.IOException;
import java.time.Duration;
import java.util.List;

/** Sends each argument as one message; prints messages until none has come for --wait-ms, and acknowledges them. */
final class SendAndPull {
  private SendAndPull() {}

  static int send(String[] line) throws IOException {
    Arguments given = new Arguments(line, "key");
    try (PenstockProducer producer = given.producer("endpoints")) {
      for (String body : given.rest) {
        Message message = new Message(given.text("topic")).setBody(body.getBytes(UTF_8));
        message.setKey(given.textOrNull("key"));
        SendOutcome stored = producer.send(message);
        Arguments.OUT.println(stored.id() + "\t" + stored.queue() + "\t" + stored.offset());
      }
    }
    return 0;
  }

  static int pull(String[] line) throws IOException {
    Arguments given = new Arguments(line, "group", "wait-ms");
    try (PenstockConsumer consumer = given.consumer(given.options())) {
      Duration wait = Duration.ofMillis(given.number("wait-ms", 1_000));
      for (List<Delivery> pulled; !(pulled = consumer.pull(32, wait)).isEmpty(); ) {
        for (Delivery each : pulled) {
          Message message = each.getMessage();
          String key = message.isSetKey() ? message.getKey() : "";
          String body = message.isSetBody() ? new String(message.getBody(), UTF_8) : "";
          Arguments.OUT.printf("%d\t%d\t%d\t%s\t%s%n", each.getQueue(), each.getOffset(), each.getAttempt(), key, body);
          consumer.done(each);
        }
      }
    }
    return 0;
  }
}
