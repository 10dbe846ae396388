package io.penstock.examples;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.penstock.client.PenstockConsumer;
import io.penstock.client.PenstockException;
import io.penstock.client.PenstockProducer;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Message;
import java.io.IOException;
import java.time.Duration;
import java.util.List;

/** Asks with each argument and prints the replies; answers requests with "re: " and what they asked. */
final class Requests {
  private Requests() {}

  static int request(String[] line) throws IOException {
    Arguments given = new Arguments(line, "wait-ms");
    try (PenstockProducer producer = given.producer("endpoints")) {
      Duration wait = Duration.ofMillis(given.number("wait-ms", 5_000));
      for (String body : given.rest) {
        Message reply = producer.request(new Message(given.text("topic")).setBody(body.getBytes(UTF_8)), wait);
        Arguments.OUT.println(new String(reply.getBody(), UTF_8));
      }
    }
    return 0;
  }

  /** Until no request has come for --wait-ms. */
  static int reply(String[] line) throws IOException {
    Arguments given = new Arguments(line, "group", "reply-endpoints", "wait-ms");
    try (PenstockConsumer consumer = given.consumer(given.options());
        PenstockProducer producer = given.producer("reply-endpoints")) {
      Duration wait = Duration.ofMillis(given.number("wait-ms", 1_000));
      for (List<Delivery> pulled; !(pulled = consumer.pull(32, wait)).isEmpty(); ) {
        for (Delivery each : pulled) {
          answer(producer, each);
          consumer.done(each);
        }
      }
    }
    return 0;
  }

  private static void answer(PenstockProducer producer, Delivery delivery) {
    if (delivery.isSetReplyToken()) {
      try {
        producer.reply(delivery, ("re: " + new String(delivery.getMessage().getBody(), UTF_8)).getBytes(UTF_8));
      } catch (PenstockException error) {
        System.err.println(error.getMessage()); // mostly because the caller no longer waits
      }
    }
  }
}
