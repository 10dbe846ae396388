package io.penstock.client;

import io.penstock.thrift.Message;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.BooleanSupplier;

/**
 * Collects single messages into calls, made one after another by a thread of its own. A call takes all that waits, as
 * far as it fits. Messages of one key keep their order, over retries too. Thread-safe; it does not close the producer.
 *
 * <p>A message must not be changed before its outcome is known.
 */
public final class BatchingProducer implements AutoCloseable {
  private static final Duration CLOSE = Duration.ofSeconds(10);

  private record Waiting(Message message, long size, double sinceMs, CompletableFuture<SendOutcome> outcome) {}

  private final PenstockProducer producer;
  private final Batching how;
  private final Object lock = new Object(); // guards all below
  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private long waitingBytes;
  private long bytes; // of what waits or is on its way
  private long taken; // messages so far
  private long answered;
  private long flushTo;
  private boolean isClosed;

  public BatchingProducer(PenstockProducer producer, Batching how) {
    this.producer = producer;
    this.how = how;
    Thread sender = new Thread(this::sendAll, "penstock-batching");
    sender.setDaemon(true);
    sender.start();
  }

  /**
   * Takes a message. The future completes with the outcome of a stored message, else with the exception of
   * {@link PenstockProducer#send}; with an IllegalStateException when the producer was closed before it sent the
   * message, which is not stored then. To cancel it has no effect on the message.
   *
   * @throws FullException no room came in time, or before an interrupt; the message was not taken
   * @throws IllegalStateException after {@link #close}
   * @throws IllegalArgumentException the message has no topic
   */
  public CompletableFuture<SendOutcome> send(Message message) {
    SendEntry.prepare(message);
    long size = new SendEntry(message, 0, false).sizeBytes();
    synchronized (lock) {
      boolean hasRoom = await(() -> isClosed || bytes < how.bytesMax, how.fullWaitMs);
      if (isClosed) {
        throw new IllegalStateException("the producer is closed");
      }
      if (!hasRoom) {
        throw new FullException("the batching producer is full: " + bytes + " bytes wait");
      }
      Waiting made = new Waiting(message, size, PenstockOptions.nowMs(), new CompletableFuture<>());
      waiting.add(made);
      taken++;
      bytes += size;
      waitingBytes += size;
      if (waiting.size() == 1 || isEnough()) {
        lock.notifyAll();
      }
      return made.outcome;
    }
  }

  /** Sends what waits now, and blocks until all that was taken before is answered, or the thread is interrupted. */
  public void flush() {
    synchronized (lock) {
      long last = taken;
      flushTo = last;
      lock.notifyAll();
      await(() -> answered >= last, Double.POSITIVE_INFINITY);
    }
  }

  /** As {@link #close(Duration)}, within 10 s. */
  @Override
  public void close() {
    close(CLOSE);
  }

  /**
   * Sends what waits, until the deadline at most. What is in no call by then ends with an IllegalStateException; a call
   * in progress goes on by its own deadline. Later messages are refused.
   */
  public void close(Duration deadline) {
    List<Waiting> left;
    synchronized (lock) {
      isClosed = true;
      lock.notifyAll();
      await(() -> answered == taken, deadline.toMillis());
      left = new ArrayList<>(waiting);
      waiting.clear();
      answered += left.size();
      lock.notifyAll();
    }
    left.forEach(each -> each.outcome.completeExceptionally(
        new IllegalStateException("the producer was closed before it sent the message")));
  }

  private boolean isEnough() {
    return waitingBytes >= how.bytes || waiting.size() >= how.messages;
  }

  private void sendAll() {
    for (List<Waiting> batch = nextBatch(); !batch.isEmpty(); batch = nextBatch()) {
      try {
        List<SendOutcome> outcomes = producer.sendAll(batch.stream().map(Waiting::message).toList());
        for (int i = 0; i < batch.size(); i++) {
          SendOutcome outcome = outcomes.get(i);
          if (outcome.ok()) {
            batch.get(i).outcome.complete(outcome);
          } else {
            batch.get(i).outcome.completeExceptionally(outcome.exception());
          }
        }
      } catch (RuntimeException error) {
        batch.forEach(each -> each.outcome.completeExceptionally(error));
      }
      synchronized (lock) {
        answered += batch.size();
        bytes -= batch.stream().mapToLong(Waiting::size).sum();
        lock.notifyAll();
      }
    }
  }

  /** Blocks until a call is to be made; empty when none will be. */
  private List<Waiting> nextBatch() {
    synchronized (lock) {
      await(() -> isClosed || !waiting.isEmpty(), Double.POSITIVE_INFINITY);
      if (!waiting.isEmpty()) {
        double leftMs = waiting.peek().sinceMs + how.lingerMs - PenstockOptions.nowMs();
        await(() -> isClosed || flushTo > answered || isEnough(), leftMs);
      }
      List<Waiting> batch = new ArrayList<>();
      long size = 0;
      while (!waiting.isEmpty() && batch.size() < PenstockProducer.CALL_MESSAGES_MAX) {
        long more = waiting.peek().size;
        if (!batch.isEmpty() && size + more > PenstockProducer.CALL_BYTES_MAX) {
          break;
        }
        size += more;
        batch.add(waiting.poll());
      }
      waitingBytes -= size;
      return batch;
    }
  }

  /** Waits with the lock until it is so, for so long at most; whether it is. An interrupt ends the wait and stays set. */
  private boolean await(BooleanSupplier isSo, double ms) {
    double untilMs = PenstockOptions.nowMs() + ms;
    while (!isSo.getAsBoolean()) {
      double leftMs = untilMs - PenstockOptions.nowMs();
      if (leftMs <= 0) {
        return false;
      }
      try {
        lock.wait((long) Math.min(60_000, Math.ceil(leftMs)));
      } catch (InterruptedException interrupt) {
        Thread.currentThread().interrupt();
        return false;
      }
    }
    return true;
  }
}
