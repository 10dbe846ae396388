package io.penstock.bench;

import java.util.Map;
import java.util.TreeMap;

/** Counts of one thread in the window; merged when all threads have ended. */
final class Tally {
    private static final int TEXT_MAX = 160;

    final Histogram latency = new Histogram();
    final Histogram takeLatency = new Histogram();
    final Histogram lag = new Histogram(); // open loop: how late a call began though its thread was free
    final Map<String, Long> errors = new TreeMap<>(); // also those outside the window: any of them makes the run invalid
    long calls;
    long deliveries; // in the window
    long deliveriesInAll;
    long unsent;

    void stored(long ns) {
        calls++;
        latency.add(ns);
    }

    /** A take that brought something. */
    void took(int messages, long ns, boolean inWindow) {
        deliveriesInAll += messages;
        if (!inWindow) return;
        deliveries += messages;
        takeLatency.add(ns);
    }

    /** Also from a library's own thread. */
    synchronized void failed(Throwable fault) {
        String text = fault.getClass().getSimpleName() + ": " + String.valueOf(fault.getMessage()).lines().findFirst().orElse("");
        errors.merge(text.substring(0, Math.min(text.length(), TEXT_MAX)), 1L, Long::sum);
    }

    void addAll(Tally other) {
        latency.addAll(other.latency);
        takeLatency.addAll(other.takeLatency);
        lag.addAll(other.lag);
        calls += other.calls;
        deliveries += other.deliveries;
        deliveriesInAll += other.deliveriesInAll;
        unsent += other.unsent;
        other.errors.forEach((text, count) -> errors.merge(text, count, Long::sum));
    }
}
