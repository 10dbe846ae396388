package io.penstock.client;

import io.penstock.thrift.Delivery;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;

/**
 * The deliveries that a run holds, in the order of their pull; at most {@code workers} of them in handlers, and of one
 * key at most one. No I/O; its user guards it by a lock.
 *
 * <p>A lease is extended once less than two thirds of it are left, and then all that have less than five sixths left go
 * with it. With a look each sixth of a lease nothing has less than half of its lease left, unless the extension fails.
 */
final class HeldLeases {
  static final double LEASE_UNKNOWN_MS = 10_000; // when neither the consumer names a lease time nor the proxy tells it

  /** One delivery that is not yet acknowledged. */
  static final class Held {
    final Delivery delivery;
    final double sinceMs;
    double untilMs; // the end of its lease
    boolean isLost; // its extension was refused

    Held(Delivery delivery, double sinceMs, double untilMs) {
      this.delivery = delivery;
      this.sinceMs = sinceMs;
      this.untilMs = untilMs;
    }

    /** Messages without a key have no order: each counts as a key of its own. */
    private Object key() {
      var message = delivery.getMessage();
      return message.isSetKey() ? List.of(message.getTopic(), message.getKey()) : this;
    }
  }

  double leaseMs = 1_000; // what a lease has at least; assumed until the first answer
  final List<Held> waiting = new ArrayList<>();
  final Set<Held> busy = new HashSet<>();
  private final double extendMsMax;
  private final int workers;
  private double handlingMs = Double.NaN; // moving average; NaN: nothing was handled yet

  HeldLeases(double extendMsMax, int workers) {
    this.extendMsMax = extendMsMax;
    this.workers = workers;
  }

  /** The interval of looks at what has to be extended or acknowledged. */
  double lookMs() {
    return leaseMs / 6;
  }

  /** The number of messages to ask for: what the free workers handle in a third of a lease, by the time so far. */
  int wanted(int most) {
    double each = Double.isNaN(handlingMs) ? 1 : Math.max(1, Math.floor(leaseMs / 3 / Math.max(handlingMs, 1e-3)));
    return (int) Math.max(1, Math.min(most, each * (workers - busy.size())));
  }

  void pulled(List<Delivery> deliveries, double leaseMs, double nowMs) {
    this.leaseMs = leaseMs;
    deliveries.forEach(each -> waiting.add(new Held(each, nowMs, nowMs + leaseMs)));
  }

  /**
   * The next delivery to handle; null when there is none, no worker is free or those that wait have keys in handlers.
   * Those whose lease has ended are dropped, as others may have them by now.
   */
  Held begin(double nowMs) {
    if (busy.size() >= workers) {
      return null;
    }
    waiting.removeIf(each -> each.isLost || each.untilMs <= nowMs);
    Set<Object> keys = new HashSet<>();
    busy.forEach(each -> keys.add(each.key()));
    for (Iterator<Held> each = waiting.iterator(); each.hasNext(); ) {
      Held held = each.next();
      if (!keys.contains(held.key())) {
        each.remove();
        busy.add(held);
        return held;
      }
    }
    return null;
  }

  /** The handler has returned. */
  void end(Held held, double tookMs) {
    busy.remove(held);
    handlingMs = Double.isNaN(handlingMs) ? tookMs : 0.75 * handlingMs + 0.25 * tookMs;
  }

  /** Whether a lease has to be extended now. */
  boolean isDue(double nowMs) {
    return !older(leaseMs * 2 / 3, nowMs).isEmpty();
  }

  List<Held> toExtend(double nowMs) {
    return older(leaseMs * 5 / 6, nowMs);
  }

  /** Lets go of all that no handler has seen. */
  List<Delivery> release() {
    List<Delivery> released = waiting.stream().filter(each -> !each.isLost).map(each -> each.delivery).toList();
    waiting.clear();
    return released;
  }

  private List<Held> older(double leftMs, double nowMs) {
    return Stream.concat(waiting.stream(), busy.stream())
        .filter(each -> !each.isLost && each.untilMs - nowMs < leftMs && nowMs - each.sinceMs < extendMsMax)
        .toList();
  }
}
