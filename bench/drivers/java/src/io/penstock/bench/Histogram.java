package io.penstock.bench;

/** Counts of nanoseconds in buckets of at most 1/128 of their value, as in bench/_histogram.pyx. Not thread-safe. */
final class Histogram {
    private static final int BITS = 7;
    private static final int STEPS = 1 << BITS;

    private final long[] counts = new long[(64 - BITS) * STEPS];
    private long total;
    private long sumNs;
    private long maxNs;
    private long underMs;

    void add(long ns) {
        ns = Math.max(0, ns);
        counts[bucket(ns)]++;
        total++;
        sumNs += ns;
        if (ns < 1_000_000) underMs++;
        if (ns > maxNs) maxNs = ns;
    }

    void addAll(Histogram other) {
        for (int i = 0; i < counts.length; i++) counts[i] += other.counts[i];
        total += other.total;
        sumNs += other.sumNs;
        underMs += other.underMs;
        maxNs = Math.max(maxNs, other.maxNs);
    }

    long total() {
        return total;
    }

    double meanMs() {
        return total == 0 ? 0 : sumNs / 1e6 / total;
    }

    double maxMs() {
        return maxNs / 1e6;
    }

    double shareUnderMs() {
        return total == 0 ? 0 : (double) underMs / total;
    }

    /** The upper end of the bucket that holds this share of all values, and never more than the maximum. */
    double percentileMs(double share) {
        long wanted = (long) Math.ceil(share * total);
        long seen = 0;
        for (int i = 0; i < counts.length; i++) {
            seen += counts[i];
            if (seen >= wanted && seen > 0) return Math.min(upperEnd(i), maxNs) / 1e6;
        }
        return maxMs();
    }

    private static int bucket(long ns) {
        if (ns < STEPS) return (int) ns;
        int shift = 63 - Long.numberOfLeadingZeros(ns) - BITS;
        return (shift + 1) * STEPS + (int) (ns >>> shift) - STEPS;
    }

    private static long upperEnd(int bucket) {
        if (bucket < STEPS) return bucket;
        int shift = bucket / STEPS - 1;
        return ((long) (bucket % STEPS + STEPS + 1) << shift) - 1;
    }
}
