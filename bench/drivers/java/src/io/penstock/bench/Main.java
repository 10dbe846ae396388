package io.penstock.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Loads one system. On standard output: the line "opens" as the measured window opens, "closes" as it closes, and then one line of JSON.
 * The parent reads the servers' CPU at the first two.
 */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Options options = Options.parse(arguments);
        List<Tally> tallies;
        try (Target target = Target.of(options)) {
            if (options.loop().equals("steady")) Steady.run(options, target);
            tallies = run(options, target);
        } // a pipelined library answers until it is closed, so nothing is added up before
        Tally total = new Tally();
        tallies.forEach(total::addAll);
        System.out.println(Report.json(options, total));
        System.out.flush();
        System.exit(0); // libraries leave threads behind that would hold the process
    }

    private static List<Tally> run(Options options, Target target) throws Exception {
        List<Target.Sender> senders = new ArrayList<>();
        for (int i = 0; i < options.threads(); i++) senders.add(target.sender(i));
        List<Target.Taker> takers = new ArrayList<>();
        for (int i = 0; i < options.consumers(); i++) takers.add(target.taker(i));
        List<Tally> tallies = new ArrayList<>();
        if (options.fill() > 0) {
            AtomicInteger left = new AtomicInteger(options.fill());
            List<Thread> filling = threads(senders, tallies, (sender, tally) -> Loops.fill(sender, left, options.batch(), tally));
            for (Thread thread : filling) thread.join();
            senders.clear();
        }
        Window window = Window.of(options);
        long[] plan = options.rate() > 0 ? Loops.plan(window, options.rate()) : new long[0];
        AtomicInteger next = new AtomicInteger();
        List<Thread> threads = threads(senders, tallies, (sender, tally) -> send(options, sender, window, plan, next, tally));
        threads.addAll(threads(takers, tallies, (taker, tally) -> take(taker, window, tally)));
        say("opens", window.opensNs());
        say("closes", window.closesNs());
        for (Thread thread : threads) thread.join();
        return tallies;
    }

    private interface Loop<T> {
        void run(T end, Tally tally) throws Exception;
    }

    /** A running thread for each end, and a tally for each thread. */
    private static <T> List<Thread> threads(List<T> ends, List<Tally> tallies, Loop<T> loop) {
        List<Thread> threads = new ArrayList<>();
        for (T end : ends) {
            Tally tally = new Tally();
            tallies.add(tally);
            threads.add(new Thread(() -> {
                try {
                    loop.run(end, tally);
                } catch (Exception | Error fault) {
                    tally.failed(fault);
                }
            }));
        }
        threads.forEach(Thread::start);
        return threads;
    }

    private static void send(Options options, Target.Sender sender, Window window, long[] plan, AtomicInteger next, Tally tally)
            throws InterruptedException {
        if (options.rate() > 0) Loops.open(sender, window, plan, next, tally);
        else if (options.loop().equals("pipelined")) Loops.pipelined(sender, window, tally);
        else Loops.sync(sender, window, tally);
    }

    /** Closed by the thread that took with it: some libraries allow no other. */
    private static void take(Target.Taker taker, Window window, Tally tally) throws InterruptedException {
        try (taker) {
            Loops.take(taker, window, tally);
        }
    }

    private static void say(String word, long atNs) {
        Window.sleepUntil(atNs);
        System.out.println(word);
        System.out.flush();
    }
}
