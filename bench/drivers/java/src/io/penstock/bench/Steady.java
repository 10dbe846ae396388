package io.penstock.bench;

import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * A load at a steady rate until the process is ended: it shows for how long a system stores nothing.
 *
 * <p>On standard output: "gap MS" when a message is stored after a time of GAP_NS or longer without one, and every BEAT_NS
 * "beat STORED FAILED LEADER IN_SYNC", the counts since the start. The Go driver prints the same.
 */
final class Steady {
    private static final long GAP_NS = 20_000_000;
    private static final long BEAT_NS = 200_000_000;

    private final AtomicLong stored = new AtomicLong();
    private final AtomicLong failed = new AtomicLong();
    private volatile String leadership = "- 0";
    private long lastNs = System.nanoTime();

    private Steady() {}

    static void run(Options options, Target target) throws Exception {
        Steady steady = new Steady();
        for (int i = 0; i < options.threads(); i++) {
            Target.Sender sender = target.sender(i);
            long stepNs = (long) (options.threads() / options.rate() * 1e9);
            daemon(() -> steady.send(sender, stepNs));
        }
        daemon(() -> steady.ask(target));
        while (true) {
            LockSupport.parkNanos(BEAT_NS);
            say("beat " + steady.stored + " " + steady.failed + " " + steady.leadership);
        }
    }

    /** Calls at even times; those that fall due while one waits are left out. */
    private void send(Target.Sender sender, long stepNs) {
        String lastFault = "";
        for (long next = System.nanoTime(); ; next = Math.max(next + stepNs, System.nanoTime())) {
            Window.sleepUntil(next);
            try {
                sender.call();
                noteStored();
            } catch (Exception fault) {
                failed.incrementAndGet();
                if (!fault.toString().equals(lastFault)) System.err.println(lastFault = fault.toString());
                LockSupport.parkNanos(Loops.AFTER_FAULT_MS * 1_000_000);
            }
        }
    }

    private synchronized void noteStored() {
        long now = System.nanoTime();
        if (now - lastNs >= GAP_NS) say(String.format(Locale.ROOT, "gap %.3f", (now - lastNs) / 1e6));
        lastNs = now;
        stored.incrementAndGet();
    }

    private void ask(Target target) {
        while (true) {
            try {
                leadership = target.leadership();
            } catch (Exception fault) {
                leadership = "- 0";
            }
            LockSupport.parkNanos(BEAT_NS);
        }
    }

    private static void daemon(Runnable loop) {
        Thread thread = new Thread(loop);
        thread.setDaemon(true);
        thread.start();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
