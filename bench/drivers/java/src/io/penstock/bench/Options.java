package io.penstock.bench;

import java.util.HashMap;
import java.util.Map;

/** Options, as bench/peers/driver.py passes them: {@code --name value} pairs, all of them always given. */
record Options(
        String system,
        String servers, // host:port of what the client library is pointed at
        String loop, // sync, pipelined, steady
        int threads, // that send
        int clients, // objects of the client library, each with its own connections; threads share them evenly
        String prefix, // of the topics' names
        int topics,
        int queues,
        int size, // bytes of a body
        int batch, // messages per call
        int consumers, // threads that take and acknowledge what is sent; 0: none
        int most, // messages per take
        int copies, // of each message, on as many nodes; with more than one, a call is answered when all in-sync nodes have it
        int patienceMs, // how long the library waits for the answer to one request before it asks again; 0: its own default
        int fill, // messages that are there before the clock starts, for the consumers alone; 0: senders and consumers run together
        double rate, // calls per second, planned ahead; 0: closed loop
        double warmupS,
        double seconds) {

    static Options parse(String[] arguments) {
        Map<String, String> given = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) given.put(arguments[i].substring(2), arguments[i + 1]);
        return new Options(
                given.get("system"), given.get("servers"), given.get("loop"),
                whole(given, "threads"), whole(given, "clients"), required(given, "prefix"), whole(given, "topics"), whole(given, "queues"),
                whole(given, "size"), whole(given, "batch"), whole(given, "consumers"), whole(given, "most"), whole(given, "copies"), whole(given, "patience"), whole(given, "fill"),
                real(given, "rate"), real(given, "warmup"), real(given, "seconds"));
    }

    String topic(int number) {
        return prefix + number;
    }

    private static int whole(Map<String, String> given, String name) {
        return Integer.parseInt(required(given, name));
    }

    private static double real(Map<String, String> given, String name) {
        return Double.parseDouble(required(given, name));
    }

    private static String required(Map<String, String> given, String name) {
        String value = given.get(name);
        if (value == null) throw new IllegalArgumentException("--" + name + " is missing");
        return value;
    }
}
