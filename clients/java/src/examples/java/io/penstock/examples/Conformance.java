package io.penstock.examples;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import io.penstock.client.PenstockConsumer;
import io.penstock.client.PenstockException;
import io.penstock.client.PenstockOptions;
import io.penstock.client.PenstockProducer;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Message;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/. */
final class Conformance {
  private static final Gson JSON = new GsonBuilder().serializeNulls().create();

  private record Sent(int code, String id, Integer queue, Long offset, int attempts) {}

  private record Pulled(String body, String key, int attempt) {}

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
    switch (asked.get("do").getAsString()) {
      case "open" -> open(asked);
      case "send" -> {
        return Map.of("results", send(asked));
      }
      case "pull" -> {
        pulled = consumer.pull(asked.get("max").getAsInt(), Duration.ofMillis(asked.get("wait_ms").getAsInt()));
        return Map.of("deliveries", pulled.stream().map(Conformance::shown).toList());
      }
      case "settle" -> settle(asked);
      case "flush" -> {
        consumer.flush();
        return Map.of("refused", consumer.acksRefused());
      }
      default -> {
        producer.close();
        consumer.close();
      }
    }
    return Map.of();
  }

  private void open(JsonObject asked) throws IOException {
    PenstockOptions options = new PenstockOptions().deadline(Duration.ofMillis(asked.get("deadline_ms").getAsInt()));
    if (asked.get("buffered").getAsBoolean()) {
      options.buffered();
    }
    if (!asked.get("tls_ca").getAsString().isEmpty()) {
      options.tlsTrusting(Path.of(asked.get("tls_ca").getAsString()));
    }
    String app = asked.get("app").getAsString();
    String keyId = asked.get("key_id").getAsString();
    String secret = asked.get("secret").getAsString();
    topic = asked.get("topic").getAsString();
    producer = new PenstockProducer(asked.get("producer").getAsString(), app, keyId, secret, options);
    consumer = new PenstockConsumer(asked.get("consumer").getAsString(), app, keyId, secret,
        asked.get("group").getAsString(), List.of(topic), null, options);
  }

  private List<Sent> send(JsonObject asked) {
    List<Message> messages = new ArrayList<>();
    asked.getAsJsonArray("messages").forEach(each -> {
      Map<?, ?> given = JSON.fromJson(each, Map.class);
      Message message = new Message(topic).setBody(given.get("body").toString().getBytes(UTF_8));
      messages.add(message.setKey((String) given.get("key")).setId((String) given.get("id")));
    });
    return producer.sendAll(messages).stream()
        .map(each -> new Sent(each.code(), each.id(), each.queue(), each.offset(), each.attempts()))
        .toList();
  }

  private static Pulled shown(Delivery each) {
    return new Pulled(new String(each.getMessage().getBody(), UTF_8), each.getMessage().getKey(), each.getAttempt());
  }

  private void settle(JsonObject asked) {
    Delivery delivery = pulled.get(asked.get("index").getAsInt());
    Duration delay = Duration.ofMillis(asked.get("delay_ms").getAsInt());
    String reason = asked.get("reason").getAsString();
    switch (asked.get("verdict").getAsString()) {
      case "done" -> consumer.done(delivery);
      case "retry" -> consumer.retry(delivery, delay, reason);
      case "reject" -> consumer.reject(delivery, reason);
      default -> consumer.extend(delivery, delay);
    }
  }
}
