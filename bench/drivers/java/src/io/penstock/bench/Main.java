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
        List<Tally> tallies = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        Window window = Window.of(options);
        long[] plan = options.rate() > 0 ? Loops.plan(window, options.rate()) : new long[0];
        AtomicInteger next = new AtomicInteger();
        for (Target.Sender sender : senders) {
            Tally tally = new Tally();
            tallies.add(tally);
            threads.add(new Thread(() -> loop(options, sender, window, plan, next, tally)));
        }
        threads.forEach(Thread::start);
        say("opens", window.opensNs());
        say("closes", window.closesNs());
        for (Thread thread : threads) thread.join();
        return tallies;
    }

    private static void loop(Options options, Target.Sender sender, Window window, long[] plan, AtomicInteger next, Tally tally) {
        try {
            if (options.rate() > 0) Loops.open(sender, window, plan, next, tally);
            else if (options.loop().equals("pipelined")) Loops.pipelined(sender, window, tally);
            else Loops.sync(sender, window, tally);
        } catch (Exception | Error fault) {
            tally.failed(fault);
        }
    }

    private static void say(String word, long atNs) {
        Window.sleepUntil(atNs);
        System.out.println(word);
        System.out.flush();
    }
}
