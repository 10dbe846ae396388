package io.penstock.examples;

import io.penstock.client.PenstockException;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** Runs a program: {@code Main send --endpoints … BODY…}. Exit code 1 after an error, 2 for bad arguments. */
public final class Main {
  /** A program; its return is the exit code. */
  interface Program {
    int run(String[] arguments) throws IOException;
  }

  private static final Map<String, Program> PROGRAMS = Map.of(
      "send", SendAndPull::send,
      "pull", SendAndPull::pull,
      "request", Requests::request,
      "reply", Requests::reply,
      "work", Work::run,
      "demo_producer", DemoProducer::run,
      "demo_consumer", DemoConsumer::run,
      "conformance", Conformance::run);

  private static final CountDownLatch ENDED = new CountDownLatch(1);
  private static volatile int status;

  private Main() {}

  public static void main(String[] arguments) {
    status = run(arguments);
    ENDED.countDown();
    System.exit(status);
  }

  /** Calls {@code stop} at SIGTERM and SIGINT; the program then ends by itself, with its own exit code. */
  static void onSignal(Runnable stop) {
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      stop.run();
      try {
        ENDED.await();
        Runtime.getRuntime().halt(status); // without it a signal's exit code is 143
      } catch (InterruptedException interrupt) {
        Thread.currentThread().interrupt();
      }
    }));
  }

  private static int run(String[] arguments) {
    Program program = arguments.length == 0 ? null : PROGRAMS.get(arguments[0]);
    if (program == null) {
      System.err.println("PROGRAM: unknown: use one of " + String.join(", ", PROGRAMS.keySet()));
      return 2;
    }
    try {
      return program.run(Arrays.copyOfRange(arguments, 1, arguments.length));
    } catch (IllegalArgumentException error) {
      System.err.println(error.getMessage());
      return 2;
    } catch (NoSuchFileException error) {
      System.err.println(error.getFile() + ": there is no such file");
      return 1;
    } catch (PenstockException | IOException error) {
      System.err.println(error.getMessage());
      return 1;
    } finally {
      Arguments.OUT.flush();
    }
  }
}
