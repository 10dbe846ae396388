package io.penstock.examples;

import io.penstock.client.PenstockConsumer;
import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Handles messages by {@code PenstockConsumer.run}, each for --handle-ms, until SIGTERM; prints one line per message.
 *
 * <p>A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.
 */
final class Work {
  private Work() {}

  static int run(String[] line) throws IOException {
    Arguments given = new Arguments(line, "group", "handle-ms", "lease-ms", "outage-ms", "workers");
    long handleMs = given.number("handle-ms", 0);
    AtomicInteger handled = new AtomicInteger();
    AtomicInteger running = new AtomicInteger();
    AtomicInteger busiest = new AtomicInteger(); // the most handlers at a time
    Duration outage = Duration.ofMillis(given.number("outage-ms", 600_000));
    PenstockConsumer consumer = given.consumer(given.options().outageMax(outage).tell(System.err::println));
    try (consumer) {
      Main.onSignal(consumer::stop);
      consumer.run(delivery -> {
        busiest.accumulateAndGet(running.incrementAndGet(), Math::max);
        Thread.sleep(handleMs);
        running.decrementAndGet();
        synchronized (Arguments.OUT) {
          Arguments.OUT.printf("%s\t%d\t%d\t%d%n", delivery.getMessage().getTopic(), delivery.getQueue(),
              delivery.getOffset(), delivery.getAttempt());
          Arguments.OUT.flush();
        }
        handled.incrementAndGet();
        return null;
      }, given.number("workers", 1), 32, Duration.ofSeconds(1)); // a stop waits for the pull in progress
    }
    Arguments.OUT.printf("{\"handled\": %d, \"refused\": %d, \"busiest\": %d}%n",
        handled.get(), consumer.acksRefused(), busiest.get());
    return 0;
  }
}
