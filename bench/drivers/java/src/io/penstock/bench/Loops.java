package io.penstock.bench;

import java.util.concurrent.atomic.AtomicInteger;

/** The loop of a thread from start to end; each fills its own tally. */
final class Loops {
    static final long AFTER_FAULT_MS = 10; // avoids flooding a server that refuses all
    private static final long OVERTIME_NS = 10_000_000_000L; // then the rest of an open loop's plan counts as unsent

    private Loops() {}

    /** One call after the other; counted when it begins and ends in the window. */
    static void sync(Target.Sender sender, Window window, Tally tally) throws InterruptedException {
        long began;
        while ((began = System.nanoTime()) < window.closesNs()) {
            try {
                sender.call();
            } catch (Exception fault) {
                tally.failed(fault);
                Thread.sleep(AFTER_FAULT_MS);
                continue;
            }
            long ended = System.nanoTime();
            if (window.open(began) && window.open(ended)) tally.stored(ended - began);
        }
    }

    /** One take after the other; counted when it begins and ends in the window. */
    static void take(Target.Taker taker, Window window, Tally tally) throws InterruptedException {
        long began;
        while ((began = System.nanoTime()) < window.closesNs()) {
            try {
                int messages = taker.take();
                long ended = System.nanoTime();
                if (messages > 0) tally.took(messages, ended - began, window.open(began) && window.open(ended));
            } catch (Exception fault) {
                tally.failed(fault);
                Thread.sleep(AFTER_FAULT_MS);
            }
        }
    }

    /** Sends calls until so many messages have been stored by all threads together. */
    static void fill(Target.Sender sender, AtomicInteger left, int batch, Tally tally) {
        while (left.addAndGet(-batch) > -batch) {
            try {
                sender.call();
            } catch (Exception fault) {
                tally.failed(fault);
            }
        }
    }

    /** As many in flight as the library lets; latency is from the hand-over to the answer, counted when the answer is in the window. */
    static void pipelined(Target.Sender sender, Window window, Tally tally) throws InterruptedException {
        while (System.nanoTime() < window.closesNs()) {
            long began = System.nanoTime();
            try {
                sender.start(fault -> {
                    long ended = System.nanoTime();
                    if (fault != null) tally.failed(fault);
                    else if (window.open(ended)) tally.stored(ended - began);
                });
            } catch (Exception fault) {
                tally.failed(fault);
                Thread.sleep(AFTER_FAULT_MS);
            }
        }
    }

    /**
     * Calls at planned times, taken by whichever thread is free. Latency counts from the planned time, so a stall is charged to every
     * call that fell due in it.
     *
     * @param next the number of the plan's next call, shared by all threads.
     */
    static void open(Target.Sender sender, Window window, long[] plan, AtomicInteger next, Tally tally) throws InterruptedException {
        sync(sender, new Window(window.startNs(), Long.MAX_VALUE, window.fullLoadEndsNs()), tally);
        for (int number = next.getAndIncrement(); number < plan.length; number = next.getAndIncrement()) {
            long planned = plan[number];
            boolean free = System.nanoTime() < planned;
            Window.sleepUntil(planned);
            long began = System.nanoTime();
            if (began > window.closesNs() + OVERTIME_NS) {
                tally.unsent++;
                continue;
            }
            if (free) tally.lag.add(began - planned);
            try {
                sender.call();
                tally.stored(System.nanoTime() - planned);
            } catch (Exception fault) {
                tally.failed(fault);
            }
        }
    }

    /** Poisson times over the window, always the same ones. */
    static long[] plan(Window window, double rate) {
        java.util.Random random = new java.util.Random(1);
        java.util.stream.LongStream.Builder times = java.util.stream.LongStream.builder();
        for (double at = window.opensNs(); at < window.closesNs(); at += -Math.log(1 - random.nextDouble()) / rate * 1e9)
            times.add((long) at);
        return times.build().toArray();
    }
}
