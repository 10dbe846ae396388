package io.penstock.examples;

import io.penstock.client.PenstockProducer;
import io.penstock.client.SendOutcome;
import io.penstock.thrift.Message;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Streams a file, one message per line, and reports progress as JSON lines.
 *
 * <p>Line i has key "k(i mod N)", property line=i, and the line's bytes with its newline as body.
 */
final class DemoProducer {
  private final long startedNs = System.nanoTime();
  private long printedNs = startedNs;
  private int sent;
  private final List<Double> callsMs = new ArrayList<>();

  static int run(String[] line) throws IOException {
    Arguments given = new Arguments(line, "file", "keys", "batch");
    int batchSize = given.number("batch", 100);
    DemoProducer report = new DemoProducer();
    int number = 0;
    try (InputStream file = new BufferedInputStream(Files.newInputStream(Path.of(given.text("file"))), 1 << 16);
        PenstockProducer producer = given.producer("endpoints")) {
      for (boolean hasMore = true; hasMore; ) {
        List<Message> batch = new ArrayList<>();
        for (byte[] body; batch.size() < batchSize && (body = nextLine(file)).length > 0; number++) {
          Message message = new Message(given.text("topic")).setKey("k" + number % given.number("keys", 16));
          batch.add(message.setBody(body).setProperties(Map.of("line", Integer.toString(number))));
        }
        hasMore = !batch.isEmpty();
        if (hasMore && !report.sent(producer, batch)) {
          report.print(producer.retried());
          return 1;
        }
      }
      report.print(producer.retried());
    }
    return 0;
  }

  private boolean sent(PenstockProducer producer, List<Message> batch) {
    long beganNs = System.nanoTime();
    List<SendOutcome> lost = new ArrayList<>(producer.sendAll(batch));
    int count = lost.size();
    lost.removeIf(SendOutcome::ok);
    sent += count - lost.size();
    callsMs.add((System.nanoTime() - beganNs) / 1e6);
    if (!lost.isEmpty()) {
      SendOutcome first = lost.get(0);
      System.err.println(lost.size() + " not acknowledged; the first: code " + first.code() + ": " + first.error());
    } else if (System.nanoTime() - printedNs >= 1_000_000_000L) {
      print(producer.retried());
    }
    return lost.isEmpty();
  }

  private void print(long retried) {
    printedNs = System.nanoTime();
    double[] ordered = callsMs.stream().mapToDouble(each -> each).sorted().toArray();
    double p50 = ordered.length == 0 ? 0 : ordered[ordered.length / 2];
    double p99 = ordered.length == 0 ? 0 : ordered[ordered.length * 99 / 100];
    Arguments.OUT.printf(Locale.ROOT,
        "{\"sent\": %d, \"retried\": %d, \"seconds\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}%n",
        sent, retried, (printedNs - startedNs) / 1e9, p50, p99);
    Arguments.OUT.flush();
  }

  /** The next line with its newline; empty at the end. */
  private static byte[] nextLine(InputStream file) throws IOException {
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    for (int each; (each = file.read()) >= 0; ) {
      line.write(each);
      if (each == '\n') {
        break;
      }
    }
    return line.toByteArray();
  }
}
