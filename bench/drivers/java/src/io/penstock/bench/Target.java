package io.penstock.bench;

/** One of the systems, through its own client library. Its topics exist and can be written when the constructor returns. */
interface Target extends AutoCloseable {

    /** The sender of one thread; never shared between threads. */
    Sender sender(int thread) throws Exception;

    /** The consumer of one thread, all of them in one group; never shared between threads. */
    default Taker taker(int number) throws Exception {
        throw new UnsupportedOperationException("this system has no consumers here");
    }

    /**
     * The node that leads the first topic's first queue and the number of nodes in its in-sync set, separated by a space. It may block.
     *
     * @throws Exception when the system does not tell, for example because no node leads.
     */
    default String leadership() throws Exception {
        return "- 0";
    }

    interface Sender {
        /**
         * Sends one call of Options.batch messages to topics chosen at random and waits for the answer.
         *
         * @throws Exception when any of them was not stored.
         */
        void call() throws Exception;

        /** Hands one message to the library and returns; `done` gets its outcome, always on the same thread for one sender. */
        default void start(Done done) throws Exception {
            throw new UnsupportedOperationException("this system has no pipelined loop here");
        }
    }

    interface Taker extends AutoCloseable {
        /**
         * Takes up to Options.most messages and acknowledges them, waiting a moment for the first.
         *
         * @return how many came.
         */
        int take() throws Exception;

        @Override
        default void close() {}
    }

    interface Done {
        /** @param fault null when the message was stored. */
        void ended(Exception fault);
    }

    static Target of(Options options) throws Exception {
        return switch (options.system()) {
            case "kafka" -> new KafkaTarget(options);
            case "rocketmq" -> new RocketmqTarget(options);
            case "rocketmq-proxy" -> new RocketmqProxyTarget(options);
            case "penstock" -> new PenstockTarget(options);
            default -> throw new IllegalArgumentException("no system is named " + options.system());
        };
    }
}
