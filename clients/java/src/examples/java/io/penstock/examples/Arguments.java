package io.penstock.examples;

import io.penstock.client.PenstockConsumer;
import io.penstock.client.PenstockOptions;
import io.penstock.client.PenstockProducer;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The command line that all programs share. The secret comes from the environment, where no process list shows it. */
final class Arguments {
  static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

  private final Map<String, String> values = new HashMap<>();
  final List<String> rest = new ArrayList<>();

  /** {@code own} are the names of the program's own options beside the common ones. */
  Arguments(String[] line, String... own) {
    List<String> known = new ArrayList<>(List.of("endpoints", "app", "key-id", "topic", "tls-ca", "deadline-ms"));
    known.addAll(List.of(own));
    for (int i = 0; i < line.length; i++) {
      if (!line[i].startsWith("--")) {
        rest.add(line[i]);
      } else if (line[i].equals("--buffered")) {
        values.put("buffered", "");
      } else {
        String name = line[i].substring(2);
        if (!known.contains(name) || i + 1 == line.length) {
          throw new IllegalArgumentException(line[i] + ": unknown, or without its value");
        }
        values.put(name, line[++i]);
      }
    }
  }

  String text(String name) {
    String value = values.get(name);
    if (value == null) {
      throw new IllegalArgumentException("--" + name + " is missing");
    }
    return value;
  }

  String textOrNull(String name) {
    return values.get(name);
  }

  int number(String name, int standard) {
    try {
      return values.containsKey(name) ? Integer.parseInt(values.get(name)) : standard;
    } catch (NumberFormatException error) {
      throw new IllegalArgumentException("--" + name + " \"" + values.get(name) + "\": invalid: use a whole number");
    }
  }

  PenstockOptions options() throws IOException {
    PenstockOptions options = new PenstockOptions().deadline(Duration.ofMillis(number("deadline-ms", 30_000)));
    if (values.containsKey("buffered")) {
      options.buffered();
    }
    return values.containsKey("tls-ca") ? options.tlsTrusting(Path.of(values.get("tls-ca"))) : options;
  }

  PenstockProducer producer(String endpoints) throws IOException {
    return new PenstockProducer(text(endpoints), text("app"), text("key-id"), secret(), options());
  }

  PenstockConsumer consumer(PenstockOptions options) {
    int leaseMs = number("lease-ms", 0);
    return new PenstockConsumer(text("endpoints"), text("app"), text("key-id"), secret(), text("group"),
        List.of(text("topic").split(",")), leaseMs == 0 ? null : Duration.ofMillis(leaseMs), options);
  }

  private static String secret() {
    String secret = System.getenv("PENSTOCK_SECRET");
    if (secret == null || secret.isEmpty()) {
      throw new IllegalArgumentException("set PENSTOCK_SECRET to the application's secret");
    }
    return secret;
  }
}
