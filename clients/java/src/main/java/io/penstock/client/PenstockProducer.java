package io.penstock.client;

import io.penstock.thrift.Code;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Durability;
import io.penstock.thrift.Message;
import io.penstock.thrift.Producer;
import io.penstock.thrift.SendRequest;
import io.penstock.thrift.SendResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntToDoubleFunction;

/**
 * Sends through any of several producer proxies and retries what needs it, each message by its own result code.
 * Thread-safe; connects at the first call.
 *
 * <p>A message without an id gets one: 32 hex digits, set in the caller's object. Only with the same id is a retry
 * after a broken connection free of duplicates. An interrupt ends the retries as the deadline does, and stays set.
 */
public final class PenstockProducer implements AutoCloseable {
  static final int CALL_MESSAGES_MAX = 1_000;
  static final long CALL_BYTES_MAX = 8_000_000; // well under Thrift's frame limit of 16,384,000

  private final PenstockOptions options;
  private final Pool<Producer.Client> pool;
  private final CredentialMint mint;
  private final AtomicLong retried = new AtomicLong();

  /**
   * @param endpoints "host:port,host:port" of producer proxies
   * @throws IllegalArgumentException an endpoint without port, or an empty credential
   */
  public PenstockProducer(String endpoints, String app, String keyId, String secret, PenstockOptions options) {
    this.options = options;
    pool = new Pool<>(endpoints, Producer.Client::new, options);
    mint = new CredentialMint(app, keyId, secret, options.credentialMs);
  }

  /**
   * Sends one message and returns once it is stored.
   *
   * @throws PenstockException it was refused, or the deadline passed; see {@link PenstockException#maybeStored}
   */
  public SendOutcome send(Message message) {
    SendOutcome outcome = sendAll(List.of(message)).get(0);
    if (!outcome.ok()) {
      throw outcome.exception();
    }
    return outcome;
  }

  /**
   * Sends one message and returns what a consumer replies.
   *
   * @param wait added to the deadline; the message is not dispatched afterwards
   * @throws PenstockException as of {@link #send}, or there is no reply: NO_CONSUMER, NO_REPLY or CONSUMER_FAILED; or
   *     TIMEOUT, as an earlier attempt was stored, whose reply cannot be had
   */
  public Message request(Message message, Duration wait) {
    SendOutcome outcome = sendAll(List.of(message), null, wait).get(0);
    if (outcome.reply() == null) {
      throw outcome.exception();
    }
    return outcome.reply();
  }

  /**
   * Answers a delivery that has a reply token; returns once the waiting caller has the reply.
   *
   * @throws PenstockException STALE_RECEIPT when the caller no longer waits, or as of {@link #send}
   */
  public SendOutcome reply(Delivery delivery, byte[] body) {
    byte[] token = delivery.isSetReplyToken() ? delivery.getReplyToken() : new byte[0];
    return send(new Message(delivery.getMessage().getTopic()).setBody(body).setReplyTo(token));
  }

  /** As {@link #sendAll(List, Durability, Duration)}, by the topics' durability. */
  public List<SendOutcome> sendAll(List<Message> messages) {
    return sendAll(messages, null, null);
  }

  /**
   * Sends many messages, of any topics, and returns one outcome each, in order. Does not throw for a message's failure.
   * Messages of one key keep their order, over retries too: a message waits while an earlier one of its key does.
   *
   * @param durability null: the topics' setting
   * @param replyWait wait for a consumer's reply; one message only. Null: not a request
   * @throws ContractException no endpoint is a producer proxy, and nothing is stored
   * @throws IllegalStateException the producer is closed
   */
  public List<SendOutcome> sendAll(List<Message> messages, Durability durability, Duration replyWait) {
    double nowMs = PenstockOptions.nowMs();
    double replyWaitMs = replyWait == null ? 0 : replyWait.toMillis();
    double deadlineMs = nowMs + options.deadlineMs + replyWaitMs;
    double chance = ThreadLocalRandom.current().nextDouble(); // drawn once: what is refused together is resent together
    IntToDoubleFunction backoffMs = failures -> options.backoffMs(failures, chance);
    List<SendEntry> entries = new ArrayList<>(messages.size());
    for (Message message : messages) {
      SendEntry.prepare(message);
      entries.add(new SendEntry(message, nowMs, replyWaitMs > 0));
    }
    List<SendEntry> open = new ArrayList<>(entries);
    Pool<Producer.Client>.Endpoint stay = null;
    while (!open.isEmpty()) {
      double now = PenstockOptions.nowMs();
      double due = SendEntry.nextDueMs(open);
      double start = Math.max(due, pool.usableAtMs());
      if (Math.max(start, now) >= deadlineMs || (start > now && !sleep(start - now))) {
        break;
      }
      if (start <= now) {
        SendRequest request = new SendRequest(mint.credential(), new ArrayList<>()).setDurability(durability);
        request.setTimeoutMs((int) Math.max(1, Math.min(options.callTimeoutMs, deadlineMs - now)));
        if (replyWaitMs > 0) {
          request.setReplyWaitMs((int) Math.max(1, Math.min(replyWaitMs, deadlineMs - now)));
        }
        try {
          stay = attempt(SendEntry.due(open, now), request, deadlineMs, stay, backoffMs);
        } catch (ContractException failure) {
          if (entries.stream().noneMatch(SendEntry::hasOutcome)) {
            throw failure;
          }
          break;
        }
        open.removeIf(each -> each.isSettled);
      }
    }
    List<SendOutcome> outcomes = entries.stream().map(SendEntry::outcome).toList();
    outcomes.forEach(options.metrics::sent);
    return outcomes;
  }

  /** Resent messages, over all calls. */
  public long retried() {
    return retried.get();
  }

  /** Closes idle connections; calls in flight end first, later ones are refused. */
  @Override
  public void close() {
    pool.close();
  }

  /** One call of the due messages that fit. Returns the proxy that has promised a slot at its rate limit, or null. */
  private Pool<Producer.Client>.Endpoint attempt(List<SendEntry> due, SendRequest request,
      double deadlineMs, Pool<Producer.Client>.Endpoint stay, IntToDoubleFunction backoffMs) {
    long size = 0;
    List<SendEntry> sending = new ArrayList<>();
    for (SendEntry each : due) {
      long more = each.sizeBytes();
      if (!sending.isEmpty() && (sending.size() >= CALL_MESSAGES_MAX || size + more > CALL_BYTES_MAX)) {
        break;
      }
      size += more;
      sending.add(each);
      request.addToMessages(each.message);
      if (each.attempts > 0) {
        retried.incrementAndGet();
      }
    }
    SendRequest hello = new SendRequest(request.getCredential(), List.of());
    double timeoutMs = Math.max(request.getTimeoutMs(), request.getReplyWaitMs()) + Pool.ANSWER_MARGIN_MS;
    try {
      Pool.Answered<SendResponse, Pool<Producer.Client>.Endpoint> answered = pool.call(
          "send", client -> client.send(request), client -> client.send(hello), size, timeoutMs, deadlineMs, stay);
      if (answered.answer().getResultsSize() != sending.size()) {
        throw new CallFailed(answered.endpoint() + ": the answer has another number of results", null, true);
      }
      return taken(sending, answered, backoffMs);
    } catch (CallFailed failure) {
      sending.forEach(each -> each.failed(failure.getMessage(), failure.sent, PenstockOptions.nowMs()));
      return null;
    } catch (ContractException failure) {
      sending.forEach(each -> each.failed(failure.getMessage(), failure.sent, PenstockOptions.nowMs()));
      throw failure;
    }
  }

  private Pool<Producer.Client>.Endpoint taken(List<SendEntry> sending,
      Pool.Answered<SendResponse, Pool<Producer.Client>.Endpoint> answered, IntToDoubleFunction backoffMs) {
    double nowMs = PenstockOptions.nowMs();
    for (int i = 0; i < sending.size(); i++) {
      sending.get(i).answered(answered.answer().getResults().get(i), nowMs, backoffMs);
    }
    if (sending.stream().anyMatch(each -> Action.of(each.code) == Action.ELSEWHERE)) {
      pool.setAside(answered.endpoint());
    } else {
      pool.praise(answered.endpoint());
    }
    boolean isPromised = sending.stream().anyMatch(each -> each.code == Code.RATE_LIMITED.getValue());
    return isPromised ? answered.endpoint() : null;
  }

  /** False when interrupted. */
  private static boolean sleep(double ms) {
    try {
      Thread.sleep((long) Math.ceil(ms));
      return true;
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
      return false;
    }
  }
}
