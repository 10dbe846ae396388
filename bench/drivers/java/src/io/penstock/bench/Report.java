package io.penstock.bench;

import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/** The line of JSON; names as in bench/outcome.py. The Go driver prints the same. */
final class Report {
    private Report() {}

    static String json(Options options, Tally tally) {
        boolean drains = options.fill() > 0;
        long messages = drains ? tally.deliveries : tally.calls * (options.loop().equals("pipelined") ? 1 : options.batch());
        long calls = drains ? tally.takeLatency.total() : tally.calls;
        return String.format(Locale.ROOT,
                "{\"calls\": %d, \"messages\": %d, \"deliveries\": %d, \"dry\": %b, \"window_s\": %.6f, \"latency\": %s, \"start_lag\": %s, \"unsent\": %d, \"errors\": %s}",
                calls, messages, tally.deliveries, drains && tally.deliveriesInAll >= options.fill(), options.seconds(),
                latency(drains ? tally.takeLatency : tally.latency), latency(tally.lag), tally.unsent, errors(tally.errors));
    }

    private static String latency(Histogram of) {
        return String.format(Locale.ROOT,
                "{\"count\": %d, \"mean_ms\": %.6f, \"p50\": %.6f, \"p90\": %.6f, \"p99\": %.6f, \"p99_9\": %.6f, \"p99_99\": %.6f,"
                        + " \"max_ms\": %.6f, \"share_under_1_ms\": %.8f}",
                of.total(), of.meanMs(), of.percentileMs(0.5), of.percentileMs(0.9), of.percentileMs(0.99), of.percentileMs(0.999),
                of.percentileMs(0.9999), of.maxMs(), of.shareUnderMs());
    }

    private static String errors(Map<String, Long> errors) {
        return errors.entrySet().stream()
                .map(entry -> quoted(entry.getKey()) + ": " + entry.getValue())
                .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String quoted(String text) {
        String plain = text.replaceAll("[\\p{Cntrl}]", " ").replace("\\", "\\\\").replace("\"", "\\\"");
        return '"' + plain + '"';
    }
}
