package io.penstock.client;

import io.penstock.thrift.Ack;
import io.penstock.thrift.AckResult;
import io.penstock.thrift.Code;
import io.penstock.thrift.Consumer;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Position;
import io.penstock.thrift.PullRequest;
import io.penstock.thrift.PullResponse;
import io.penstock.thrift.Verdict;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;

/**
 * One member of a group. Any number of members share the group's messages, without assignment. Thread-safe; one pull at
 * a time.
 *
 * <p>Acknowledgements wait here and travel with the next pull; {@link #close} delivers the last ones. What is pulled
 * and not acknowledged is redelivered, with its attempt one higher, after its lease.
 */
public final class PenstockConsumer implements AutoCloseable {
  private static final long ACK_BYTES = 120; // estimated size of one acknowledgement in a request
  private static final long POSITION_BYTES_MAX = 320; // a name of a topic has 249 bytes at most
  private static final double SOCKET_MARGIN_MS = 2_000;

  final PenstockOptions options;
  final double invisibleMs;
  final Object lock = new Object(); // guards what follows and the leases of a run; notified when a run has to look
  private List<Ack> acks = new ArrayList<>();
  private double ackedAtMs; // when the oldest of them was given
  private int acksRefused;
  private Map<String, String> unservedTopics = Map.of();
  private final String group;
  private final List<String> topics;
  private final Pool<Consumer.Client> pool;
  private final CredentialMint mint;
  private final ReentrantLock pulling = new ReentrantLock();
  private RunLoop running;

  /**
   * @param endpoints "host:port,host:port" of consumer proxies
   * @param topics null or empty: all topics of the group's definition
   * @param invisible lease time of the deliveries, 1 s to 12 h; null: the group's setting
   * @throws IllegalArgumentException an endpoint without port, or an empty credential
   */
  public PenstockConsumer(String endpoints, String app, String keyId, String secret, String group, List<String> topics,
      Duration invisible, PenstockOptions options) {
    this.options = options;
    this.group = group;
    this.topics = topics == null ? List.of() : List.copyOf(topics);
    invisibleMs = invisible == null ? 0 : invisible.toMillis();
    pool = new Pool<>(endpoints, Consumer.Client::new, options);
    mint = new CredentialMint(app, keyId, secret, options.credentialMs);
  }

  /**
   * The next deliveries; none when none came within {@code wait} (30 s at most). Retries at other proxies until the
   * deadline.
   *
   * @throws PenstockException refused (wrong credential, group or topic), or no proxy answered before the deadline
   * @throws IllegalStateException the consumer is closed
   */
  public List<Delivery> pull(int maxMessages, Duration wait) {
    return pull(maxMessages, wait.toMillis(), null, () -> false).getDeliveries();
  }

  /**
   * Reads by position, for programs that keep their own progress: nothing is leased, no group is moved, and there is
   * nothing to acknowledge. Retries as {@link #pull(int, Duration)} does.
   *
   * @param positions 1000 at most; without an offset and a time: only report the bounds
   * @return the deliveries, and one report per position in order: each has a code of its own, and the offset to read
   *     next
   * @throws PenstockException the whole call was refused, or no proxy answered before the deadline
   */
  public PullResponse read(List<Position> positions, int maxMessages, Duration wait) {
    return pull(positions, maxMessages, wait.toMillis(), null, () -> false);
  }

  /** Like all verdicts it travels with the next pull, {@link #flush} or {@link #close}. */
  public void done(Delivery delivery) {
    acknowledge(newAck(delivery, Verdict.DONE));
  }

  /** Requests redelivery after the delay (null: the group's back-off). The reason may be null. */
  public void retry(Delivery delivery, Duration delay, String reason) {
    Ack ack = newAck(delivery, Verdict.RETRY).setReason(reason);
    acknowledge(delay == null ? ack : ack.setDelayMs((int) delay.toMillis()));
  }

  /** Sends it to the dead-letter topic now; the reason, which may be null, is stored with it. */
  public void reject(Delivery delivery, String reason) {
    acknowledge(newAck(delivery, Verdict.REJECT).setReason(reason));
  }

  /** The lease ends this long after a proxy has taken the acknowledgement. */
  public void extend(Delivery delivery, Duration delay) {
    acknowledge(newAck(delivery, Verdict.EXTEND).setDelayMs((int) delay.toMillis()));
  }

  /** Delivers the waiting acknowledgements now, without taking messages. */
  public void flush() {
    if (isAckDue(0)) {
      pull(0, 0, null, () -> false);
    }
  }

  /** As {@link #run(Handler, int, int, Duration)} with one worker, 32 messages per pull at most and 5 s of wait. */
  public void run(Handler handler) {
    run(handler, 1, 32, Duration.ofSeconds(5));
  }

  /**
   * Pulls and handles until {@link #stop} or an interrupt, then gives back what no handler has seen and delivers the
   * last acknowledgements. Leases are extended while messages wait or are handled; the rules are in clients/README.md.
   *
   * @param workers handlers at a time, each in a thread of its own; of one key never more than one
   * @param maxMessages of one pull; fewer are asked for when the handlers are slow
   * @param wait long poll of one pull; a stop may wait for it
   * @throws PenstockException refused for good, no pull succeeded for the option outageMax, or the last
   *     acknowledgements could not be delivered
   * @throws IllegalStateException another run of this consumer is in progress, or it is closed
   */
  public void run(Handler handler, int workers, int maxMessages, Duration wait) {
    if (workers < 1 || maxMessages < 1) {
      throw new IllegalArgumentException("workers and maxMessages: use a number from 1");
    }
    RunLoop loop = new RunLoop(this, handler, workers, maxMessages, wait.toMillis());
    synchronized (lock) {
      if (running != null) {
        throw new IllegalStateException("another run of this consumer is in progress");
      }
      running = loop;
    }
    try {
      loop.run();
    } finally {
      synchronized (lock) {
        running = null;
      }
    }
  }

  /** Ends the run in progress after its handlers in progress; from any thread, and returns at once. */
  public void stop() {
    synchronized (lock) {
      if (running != null) {
        running.stop();
      }
    }
  }

  /** Acknowledgements that were late or invalid: their messages are redelivered. */
  public int acksRefused() {
    synchronized (lock) {
      return acksRefused;
    }
  }

  /** Topics that the last pull named and that give nothing, with the reason of each. */
  public Map<String, String> unservedTopics() {
    synchronized (lock) {
      return unservedTopics;
    }
  }

  /** Delivers the waiting acknowledgements and closes the connections. */
  @Override
  public void close() {
    try {
      flush();
    } finally {
      pool.close();
    }
  }

  static Ack newAck(Delivery delivery, Verdict verdict) {
    Ack ack = new Ack(delivery.bufferForReceipt());
    return verdict == Verdict.DONE ? ack : ack.setVerdict(verdict);
  }

  void acknowledge(Ack ack) {
    synchronized (lock) {
      if (acks.isEmpty()) {
        ackedAtMs = PenstockOptions.nowMs();
      }
      acks.add(ack);
    }
  }

  /** Whether acknowledgements have waited here for so long. */
  boolean isAckDue(double waitMs) {
    synchronized (lock) {
      return !acks.isEmpty() && PenstockOptions.nowMs() - ackedAtMs >= waitMs;
    }
  }

  /** The response that was served; null when {@code stopped} said so before. Extends the leases of held if given. */
  PullResponse pull(int maxMessages, double waitMs, HeldLeases held, BooleanSupplier stopped) {
    return pull(List.of(), maxMessages, waitMs, held, stopped);
  }

  private PullResponse pull(List<Position> positions, int maxMessages, double waitMs, HeldLeases held,
      BooleanSupplier stopped) {
    pulling.lock();
    try {
      double deadlineMs = PenstockOptions.nowMs() + waitMs + options.deadlineMs;
      PenstockException error = unavailable("no proxy could be reached before the deadline");
      double dueAtMs = Double.NEGATIVE_INFINITY;
      Pool<Consumer.Client>.Endpoint stay = null;
      for (int failures = 0; ; ) {
        double now = PenstockOptions.nowMs();
        double start = Math.max(now, Math.max(dueAtMs, pool.usableAtMs()));
        if (start >= deadlineMs) {
          throw error;
        }
        if (stopped.getAsBoolean()) {
          return null;
        }
        if (start > now) {
          if (!pause(start - now)) {
            throw error;
          }
          continue;
        }
        Pool.Answered<PullResponse, Pool<Consumer.Client>.Endpoint> answered;
        try {
          answered = attempt(positions, maxMessages, waitMs, deadlineMs, held, stay);
        } catch (CallFailed failure) {
          error = unavailable(failure.getMessage());
          continue;
        }
        PullResponse response = answered.answer();
        if (maxMessages > 0 && positions.isEmpty()) {
          tellReports(response);
        }
        Action action = Action.of(response.getCode());
        if (action == Action.DONE) {
          pool.praise(answered.endpoint());
          return response;
        }
        error = new PenstockException(response.getCode(), response.getError(), null);
        if (action == Action.REFUSED) {
          throw error;
        }
        failures++;
        if (action == Action.ELSEWHERE) {
          pool.setAside(answered.endpoint());
        } else {
          double backoffMs = options.backoffMs(failures);
          int code = response.getCode();
          dueAtMs = PenstockOptions.nowMs() + SendEntry.pauseMs(code, response.getRetryAfterMs(), backoffMs);
          stay = code == Code.RATE_LIMITED.getValue() ? answered.endpoint() : null;
        }
      }
    } finally {
      pulling.unlock();
    }
  }

  /** Waits so long, or until the lock is notified. False when interrupted; the interrupt stays set. */
  boolean pause(double ms) {
    try {
      synchronized (lock) {
        lock.wait((long) Math.ceil(ms));
      }
      return true;
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  private static PenstockException unavailable(String reason) {
    return new PenstockException(Code.UNAVAILABLE.getValue(), reason, null);
  }

  private Pool.Answered<PullResponse, Pool<Consumer.Client>.Endpoint> attempt(List<Position> positions,
      int maxMessages, double waitMs, double deadlineMs, HeldLeases held, Pool<Consumer.Client>.Endpoint stay)
      throws CallFailed {
    double sentAtMs = PenstockOptions.nowMs();
    List<Ack> sent;
    List<HeldLeases.Held> extended;
    synchronized (lock) {
      sent = List.copyOf(acks);
      extended = held == null ? List.of() : held.toExtend(sentAtMs);
    }
    List<Ack> given = new ArrayList<>(sent);
    for (HeldLeases.Held each : extended) {
      given.add(newAck(each.delivery, Verdict.EXTEND).setDelayMs((int) held.leaseMs));
    }
    PullRequest request = new PullRequest(mint.credential(), group).setTopics(topics).setMaxMessages(maxMessages);
    request.setWaitMs((int) Math.max(0, Math.min(waitMs, deadlineMs - sentAtMs))).setAcks(given);
    if (!positions.isEmpty()) {
      request.setPositions(positions);
    } else if (invisibleMs > 0) {
      request.setInvisibleMs((int) invisibleMs);
    }
    PullRequest hello = new PullRequest(request.getCredential(), group).setTopics(topics).setMaxMessages(0);
    var answered = pool.call("pull", client -> client.pull(request), client -> client.pull(hello),
        given.size() * ACK_BYTES + positions.size() * POSITION_BYTES_MAX, request.getWaitMs() + SOCKET_MARGIN_MS,
        deadlineMs, stay);
    synchronized (lock) {
      settle(sent, answered.answer());
      extended(extended, sent.size(), answered.answer(), sentAtMs, held);
    }
    return answered;
  }

  /** Drops settled acknowledgements; the others go with the next pull. */
  private void settle(List<Ack> sent, PullResponse response) {
    List<AckResult> results = response.getAckResults();
    List<Ack> again = new ArrayList<>();
    for (int i = 0; i < sent.size(); i++) {
      if (i < results.size() && isRefused(results.get(i), response)) {
        acksRefused++;
      } else if (i >= results.size() || Action.of(results.get(i).getCode()) != Action.DONE) {
        again.add(sent.get(i));
      }
    }
    again.addAll(acks.subList(sent.size(), acks.size()));
    acks = again;
    ackedAtMs = PenstockOptions.nowMs();
  }

  private static void extended(List<HeldLeases.Held> extended, int first, PullResponse response, double sentAtMs,
      HeldLeases held) {
    List<AckResult> results = response.getAckResults();
    for (int i = 0; i < extended.size() && first + i < results.size(); i++) {
      AckResult result = results.get(first + i);
      if (Action.of(result.getCode()) == Action.DONE) {
        extended.get(i).untilMs = sentAtMs + held.leaseMs;
      } else if (isRefused(result, response)) {
        extended.get(i).isLost = true;
      }
    }
  }

  /** A refused pull's acknowledgements have codes of their own. Those with the pull's code were not looked at. */
  private static boolean isRefused(AckResult result, PullResponse response) {
    return Action.of(result.getCode()) == Action.REFUSED && result.getCode() != response.getCode();
  }

  /** Tells of each topic that gives nothing, and when it is served again; once per change. */
  private void tellReports(PullResponse response) {
    Map<String, String> unserved = new LinkedHashMap<>();
    if (Action.of(response.getCode()) == Action.DONE) {
      if (response.isSetTopics()) {
        response.getTopics().forEach(each -> unserved.put(each.getTopic(), reason(each.getCode(), each.getError())));
      }
    } else if (response.getCode() == Code.UNKNOWN_TOPIC.getValue()) {
      List<String> named = topics.isEmpty() ? List.of("(the group's)") : topics;
      named.forEach(each -> unserved.put(each, reason(response.getCode(), response.getError())));
    } else {
      return;
    }
    Map<String, String> before;
    synchronized (lock) {
      before = unservedTopics;
      unservedTopics = Map.copyOf(unserved);
    }
    unserved.forEach((topic, reason) -> {
      if (!before.containsKey(topic)) {
        options.tell.accept("topic " + topic + " gives nothing: " + reason);
      }
    });
    for (String topic : before.keySet()) {
      if (!unserved.containsKey(topic)) {
        options.tell.accept("topic " + topic + " is served again");
      }
    }
  }

  private static String reason(int code, String error) {
    return Action.nameOf(code) + ": " + (error == null ? "no reason given" : error);
  }
}
