package io.penstock.bench;

import java.util.SplittableRandom;

/** A sender's own choices: which topic is next, and a body that no library could compress. */
final class Bodies {
    final byte[] body;
    private final SplittableRandom random;
    private final int topics;

    Bodies(Options options, int thread) {
        random = new SplittableRandom(thread + 1);
        topics = options.topics();
        body = new byte[options.size()];
        random.nextBytes(body);
    }

    int topic() {
        return random.nextInt(topics);
    }
}
