package io.penstock.bench;

import java.util.concurrent.locks.LockSupport;

/** The measured time, planned before the threads start, on the clock of System.nanoTime. */
record Window(long startNs, long opensNs, long closesNs) {
    /** Between the full load of the warm-up and an open loop's window: what was in flight ends, the queues run dry. */
    private static final long SETTLE_NS = 1_000_000_000L;

    static Window of(Options options) {
        long start = System.nanoTime();
        long opens = start + (long) (options.warmupS() * 1e9) + (options.rate() > 0 ? SETTLE_NS : 0);
        return new Window(start, opens, opens + (long) (options.seconds() * 1e9));
    }

    /** Until when an open loop's threads send as fast as they can, so that server and client are compiled before the plan begins. */
    long fullLoadEndsNs() {
        return opensNs - SETTLE_NS;
    }

    boolean open(long ns) {
        return ns >= opensNs && ns < closesNs;
    }

    /** Sleeps to within some 60 µs after that moment: no spinning, the servers need the cores. */
    static void sleepUntil(long ns) {
        for (long left = ns - System.nanoTime(); left > 0; left = ns - System.nanoTime()) LockSupport.parkNanos(left);
    }
}
