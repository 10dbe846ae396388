package io.penstock.examples;

import io.penstock.client.PenstockConsumer;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Message;
import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Pulls until --count different lines have come, or SIGTERM; prints one line per delivery and acknowledges all.
 *
 * <p>A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that
 * is delivered twice is printed twice and counted once.
 */
final class DemoConsumer {
  private DemoConsumer() {}

  static int run(String[] line) throws IOException {
    Arguments given = new Arguments(line, "group", "count", "max");
    int count = given.number("count", 0);
    int most = given.number("max", 256);
    AtomicBoolean isStopped = new AtomicBoolean();
    Main.onSignal(() -> isStopped.set(true));
    Set<String> seen = new HashSet<>();
    try (PenstockConsumer consumer = given.consumer(given.options())) {
      while (seen.size() < count && !isStopped.get()) {
        for (Delivery each : consumer.pull(most, Duration.ofSeconds(1))) {
          Message message = each.getMessage();
          String number = message.isSetProperties() ? message.getProperties().getOrDefault("line", "") : "";
          String key = message.isSetKey() ? message.getKey() : "";
          Arguments.OUT.println(number + "\t" + key + "\t" + each.getQueue() + "\t" + each.getOffset() + "\t"
              + each.getAttempt() + "\t" + digest(message.isSetBody() ? message.getBody() : new byte[0]));
          seen.add(number);
          consumer.done(each);
        }
        Arguments.OUT.flush();
      }
    }
    return 0;
  }

  private static String digest(byte[] body) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException("this Java has no SHA-256", error);
    }
  }
}
