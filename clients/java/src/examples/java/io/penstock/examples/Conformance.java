package io.penstock.examples;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import com.google.gson.annotations.SerializedName;
import io.penstock.client.Batching;
import io.penstock.client.BatchingProducer;
import io.penstock.client.FullException;
import io.penstock.client.PenstockConsumer;
import io.penstock.client.PenstockException;
import io.penstock.client.PenstockMetrics;
import io.penstock.client.PenstockOptions;
import io.penstock.client.PenstockProducer;
import io.penstock.client.SendOutcome;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Message;
import io.penstock.thrift.Operation;
import io.penstock.thrift.Verdict;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;

/** Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/. */
final class Conformance {
  private static final Gson JSON = new GsonBuilder().serializeNulls().create();
  private static final HexFormat HEX = HexFormat.of();

  private record Sent(int code, String id, Integer queue, Long offset, int attempts, String reply, String reason) {}

  private record Pulled(
      String body, String key, String tag, Map<String, String> properties, String id, int attempt, boolean asked) {}

  /** Counts what the hook is told. */
  private static final class Told implements PenstockMetrics {
    private final int[] counts = new int[4]; // calls, failed calls, sent messages, handled messages

    @Override
    public synchronized void call(String method, String endpoint, double tookMs, Exception failure) {
      counts[0]++;
      counts[1] += failure == null ? 0 : 1;
    }

    @Override
    public synchronized void sent(SendOutcome outcome) {
      counts[2]++;
    }

    @Override
    public synchronized void handled(Delivery delivery, Verdict verdict, double tookMs) {
      counts[3]++;
    }
  }

  /** A message of a step. */
  private static final class Given {
    String body;
    String key;
    String id;
    String tag;
    Map<String, String> properties;
    int times;
    boolean cancel;

    @SerializedName("delay_ms")
    long delayMs;
  }

  private Told told;
  private PenstockProducer producer;
  private PenstockConsumer consumer;
  private String topic;
  private List<Delivery> pulled = List.of();

  static int run(String[] line) throws IOException {
    Conformance driver = new Conformance();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    for (String text; (text = lines.readLine()) != null; ) {
      Object answer;
      try {
        answer = driver.step(JSON.fromJson(text, JsonObject.class));
      } catch (PenstockException error) {
        answer = Map.of("code", error.code());
      }
      Arguments.OUT.println(JSON.toJson(answer));
      Arguments.OUT.flush();
    }
    return 0;
  }

  private Object step(JsonObject asked) throws IOException {
    switch (text(asked, "do")) {
      case "open" -> open(asked);
      case "send" -> {
        return Map.of("results", send(asked));
      }
      case "batch" -> {
        return Map.of("results", batch(asked));
      }
      case "pull" -> {
        pulled = consumer.pull(number(asked, "max"), duration(asked, "wait_ms"));
        return Map.of("deliveries", pulled.stream().map(Conformance::shown).toList());
      }
      case "settle" -> settle(asked);
      case "reply" -> producer.reply(pulled.get(number(asked, "index")), HEX.parseHex(text(asked, "body")));
      case "run" -> {
        return run(asked);
      }
      case "flush" -> {
        consumer.flush();
        return Map.of("refused", consumer.acksRefused(), "told", told.counts);
      }
      default -> {
        producer.close();
        consumer.close();
      }
    }
    return Map.of();
  }

  private void open(JsonObject asked) throws IOException {
    told = new Told();
    PenstockOptions options = new PenstockOptions()
        .metrics(told)
        .deadline(duration(asked, "deadline_ms"))
        .callTimeout(duration(asked, "call_timeout_ms"));
    if (asked.get("buffered").getAsBoolean()) {
      options.buffered();
    }
    if (!text(asked, "tls_ca").isEmpty()) {
      options.tlsTrusting(Path.of(text(asked, "tls_ca")));
    }
    String app = text(asked, "app");
    String keyId = text(asked, "key_id");
    String secret = text(asked, "secret");
    Duration invisible = number(asked, "lease_ms") > 0 ? duration(asked, "lease_ms") : null;
    topic = text(asked, "topic");
    producer = new PenstockProducer(text(asked, "producer"), app, keyId, secret, options);
    consumer = new PenstockConsumer(text(asked, "consumer"), app, keyId, secret, text(asked, "group"), List.of(topic),
        invisible, options);
  }

  private List<Message> messages(JsonObject asked) {
    List<Message> messages = new ArrayList<>();
    asked.getAsJsonArray("messages").forEach(each -> messages.add(message(JSON.fromJson(each, Given.class))));
    return messages;
  }

  private List<Map<String, Object>> batch(JsonObject asked) {
    Batching how = new Batching()
        .linger(duration(asked, "linger_ms"))
        .bytes(number(asked, "bytes"))
        .messages(number(asked, "count"))
        .bytesMax(number(asked, "bytes_max"))
        .fullWait(duration(asked, "full_wait_ms"));
    try (BatchingProducer batching = new BatchingProducer(producer, how)) {
      List<CompletableFuture<SendOutcome>> taken = new ArrayList<>();
      for (Message each : messages(asked)) {
        try {
          taken.add(batching.send(each));
        } catch (FullException full) {
          taken.add(CompletableFuture.failedFuture(full));
        }
      }
      if (asked.get("flush").getAsBoolean()) {
        batching.flush();
      }
      if (number(asked, "close_ms") >= 0) {
        batching.close(duration(asked, "close_ms"));
      }
      return taken.stream().map(Conformance::outcome).toList();
    }
  }

  private static Map<String, Object> outcome(CompletableFuture<SendOutcome> taken) {
    try {
      SendOutcome stored = taken.join();
      return Map.of("code", stored.code(), "id", stored.id(), "attempts", stored.attempts());
    } catch (CompletionException failed) {
      if (failed.getCause() instanceof PenstockException refused) {
        return Map.of("code", refused.code(), "id", refused.messageId());
      }
      return Map.of("error", failed.getCause() instanceof FullException ? "full" : "closed");
    }
  }

  private List<Sent> send(JsonObject asked) {
    Duration replyWait = number(asked, "reply_wait_ms") > 0 ? duration(asked, "reply_wait_ms") : null;
    return producer.sendAll(messages(asked), null, replyWait).stream()
        .map(each -> new Sent(each.code(), each.id(), each.queue(), each.offset(), each.attempts(),
            each.reply() == null ? null : HEX.formatHex(each.reply().getBody()), each.error()))
        .toList();
  }

  private Message message(Given given) {
    byte[] body = HEX.parseHex(given.body.repeat(Math.max(1, given.times)));
    Message message = new Message(topic).setBody(body).setKey(given.key).setId(given.id).setTag(given.tag);
    if (given.delayMs > 0) {
      message.setDelayMs(given.delayMs);
    }
    return message.setProperties(given.properties).setOperation(given.cancel ? Operation.CANCEL : null);
  }

  private Map<String, Object> run(JsonObject asked) {
    List<String> handled = Collections.synchronizedList(new ArrayList<>());
    AtomicInteger busy = new AtomicInteger();
    AtomicInteger busiest = new AtomicInteger(); // the most handlers at a time
    consumer.run(delivery -> {
      busiest.accumulateAndGet(busy.incrementAndGet(), Math::max);
      Thread.sleep(number(asked, "handle_ms"));
      busy.decrementAndGet();
      handled.add(HEX.formatHex(delivery.getMessage().getBody()));
      if (handled.size() == number(asked, "count")) {
        consumer.stop();
      }
      if (text(asked, "verdict").equals("fail")) {
        throw new IllegalStateException("the handler failed");
      }
      if (text(asked, "verdict").equals("fault")) {
        throw new AssertionError("the handler failed");
      }
      return text(asked, "verdict").equals("reject") ? Verdict.REJECT : Verdict.DONE;
    }, number(asked, "workers"), 32, Duration.ofSeconds(5));
    return Map.of("handled", handled, "busiest", busiest.get());
  }

  private static Pulled shown(Delivery each) {
    Message message = each.getMessage();
    byte[] body = message.isSetBody() ? message.getBody() : new byte[0];
    return new Pulled(HEX.formatHex(body), message.getKey(), message.getTag(), message.getProperties(), each.getId(),
        each.getAttempt(), each.isSetReplyToken());
  }

  private void settle(JsonObject asked) {
    Delivery delivery = pulled.get(number(asked, "index"));
    Duration delay = duration(asked, "delay_ms");
    String reason = text(asked, "reason");
    switch (text(asked, "verdict")) {
      case "done" -> consumer.done(delivery);
      case "retry" -> consumer.retry(delivery, delay, reason);
      case "reject" -> consumer.reject(delivery, reason);
      default -> consumer.extend(delivery, delay);
    }
  }

  private static String text(JsonObject of, String name) {
    return of.get(name).getAsString();
  }

  private static int number(JsonObject of, String name) {
    return of.get(name).getAsInt();
  }

  private static Duration duration(JsonObject of, String name) {
    return Duration.ofMillis(number(of, name));
  }
}
