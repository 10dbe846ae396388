package io.penstock.client;

import io.penstock.thrift.Ack;
import io.penstock.thrift.Code;
import io.penstock.thrift.PullResponse;
import io.penstock.thrift.Verdict;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;

/** The loop of {@link PenstockConsumer#run}: pull, handle, acknowledge in time, and ride through outages. */
final class RunLoop {
  // Refusals that end when an operator defines what is missing.
  private static final Set<Integer> WAITS_FOR = Set.of(Code.UNKNOWN_TOPIC.getValue(), Code.UNKNOWN_GROUP.getValue());

  private final PenstockConsumer consumer;
  private final PenstockOptions options;
  private final Handler handler;
  private final int workers;
  private final int most;
  private final double waitMs;
  private final HeldLeases held; // guarded by the consumer's lock
  private volatile boolean isStopped;
  private volatile boolean isEnded;
  private double servedAtMs = PenstockOptions.nowMs();
  private int failures;

  RunLoop(PenstockConsumer consumer, Handler handler, int workers, int most, double waitMs) {
    this.consumer = consumer;
    this.options = consumer.options;
    this.handler = handler;
    this.workers = workers;
    this.most = most;
    this.waitMs = waitMs;
    held = new HeldLeases(options.extendMsMax, workers);
  }

  void stop() {
    synchronized (consumer.lock) {
      isStopped = true;
      consumer.lock.notifyAll();
    }
  }

  void run() {
    ExecutorService pool = Executors.newFixedThreadPool(workers, named("penstock-worker"));
    Thread keeper = named("penstock-leases").newThread(this::keep);
    keeper.start();
    try {
      while (!isStopped && !Thread.currentThread().isInterrupted()) {
        boolean hasRoom;
        synchronized (consumer.lock) {
          hasRoom = start(pool);
          if (!hasRoom && !isStopped) {
            consumer.pause(0); // until a handler ends, or a stop
          }
        }
        if (hasRoom) {
          pull();
        }
      }
    } finally {
      end(pool, keeper);
    }
    consumer.flush();
  }

  /** Starts handlers for what waits, as far as workers are free; false: a handler has to end before the next pull. */
  private boolean start(ExecutorService pool) {
    for (HeldLeases.Held next; !isStopped && (next = held.begin(PenstockOptions.nowMs())) != null; ) {
      HeldLeases.Held begun = next;
      pool.execute(() -> work(begun));
    }
    return held.busy.isEmpty() || (held.busy.size() < workers && held.waiting.isEmpty());
  }

  private void work(HeldLeases.Held begun) {
    double beganMs = PenstockOptions.nowMs();
    Verdict verdict;
    String reason = null;
    try {
      Verdict given = handler.handle(begun.delivery);
      verdict = given == null ? Verdict.DONE : given;
      if (verdict == Verdict.EXTEND || verdict == Verdict.RELEASE) {
        throw new IllegalArgumentException("the handler returned " + verdict + ": use DONE, RETRY or REJECT");
      }
    } catch (Throwable error) { // a handler's fault costs its message an attempt, not the loop
      verdict = Verdict.RETRY;
      reason = error.toString();
    }
    double tookMs = PenstockOptions.nowMs() - beganMs;
    Ack ack = PenstockConsumer.newAck(begun.delivery, verdict).setReason(reason);
    options.metrics.handled(begun.delivery, verdict, tookMs); // before its end, which the end of the run waits for
    synchronized (consumer.lock) { // one step, so that no extension follows the acknowledgement
      held.end(begun, tookMs);
      consumer.acknowledge(ack);
      consumer.lock.notifyAll();
    }
  }

  private void pull() {
    int wanted;
    double pollMs;
    synchronized (consumer.lock) {
      wanted = held.wanted(most);
      // Beside handlers a pull waits for a sixth of a lease at most: the next one has to carry their extensions.
      pollMs = held.busy.isEmpty() ? waitMs : Math.min(waitMs, held.lookMs());
    }
    PullResponse response;
    try {
      response = consumer.pull(wanted, pollMs, held, () -> isStopped);
    } catch (ContractException error) {
      throw error;
    } catch (PenstockException error) {
      failed(error);
      return;
    }
    if (response == null) {
      return;
    }
    double nowMs = PenstockOptions.nowMs();
    if (failures > 0) {
      options.tell.accept("pulling again after " + Math.round((nowMs - servedAtMs) / 1000) + " s");
    }
    failures = 0;
    servedAtMs = nowMs;
    double toldMs = response.getInvisibleMs() > 0 ? response.getInvisibleMs() : HeldLeases.LEASE_UNKNOWN_MS;
    synchronized (consumer.lock) {
      held.pulled(response.getDeliveries(), consumer.invisibleMs > 0 ? consumer.invisibleMs : toldMs, nowMs);
    }
  }

  /** Tells of the outage and pauses. Throws the error if waiting cannot help, or was in vain for too long. */
  private void failed(PenstockException error) {
    boolean isFinal = Action.of(error.code()) == Action.REFUSED && !WAITS_FOR.contains(error.code());
    double downMs = PenstockOptions.nowMs() - servedAtMs;
    if (isFinal || (options.outageMsMax > 0 && downMs >= options.outageMsMax)) {
      throw error;
    }
    failures++;
    if (failures == 1) {
      options.tell.accept("no pull succeeds, trying again: " + error.getMessage());
    }
    if (!isStopped) {
      consumer.pause(options.backoffMs(failures));
    }
  }

  /** Delivers acknowledgements and extensions in time. */
  private void keep() {
    while (waitForLook()) {
      try {
        consumer.pull(0, 0, held, () -> isEnded);
      } catch (PenstockException | IllegalStateException error) {
        // the next look or pull tries again
      }
    }
  }

  /** Waits for the next look that finds something due; false at the end of the run. */
  private boolean waitForLook() {
    synchronized (consumer.lock) {
      double lookedAtMs = PenstockOptions.nowMs();
      while (!isEnded) {
        double nowMs = PenstockOptions.nowMs();
        double leftMs = lookedAtMs + held.lookMs() - nowMs;
        if (leftMs > 0) {
          consumer.pause(leftMs);
        } else if (consumer.isAckDue(held.lookMs()) || held.isDue(nowMs)) {
          return true;
        } else {
          lookedAtMs = nowMs;
        }
      }
      return false;
    }
  }

  /** Waits for the handlers in progress, whose leases are kept meanwhile, and gives back what none has seen. */
  private void end(ExecutorService pool, Thread keeper) {
    pool.shutdown();
    boolean isInterrupted = Thread.interrupted();
    synchronized (consumer.lock) {
      while (!held.busy.isEmpty()) {
        isInterrupted |= !consumer.pause(0) && Thread.interrupted();
      }
      isEnded = true;
      consumer.lock.notifyAll();
    }
    while (keeper.isAlive()) {
      try {
        keeper.join();
      } catch (InterruptedException interrupt) {
        isInterrupted = true;
      }
    }
    synchronized (consumer.lock) {
      held.release().forEach(each -> consumer.acknowledge(PenstockConsumer.newAck(each, Verdict.RELEASE)));
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private static ThreadFactory named(String name) {
    return task -> {
      Thread thread = new Thread(task, name);
      thread.setDaemon(true);
      return thread;
    };
  }
}
