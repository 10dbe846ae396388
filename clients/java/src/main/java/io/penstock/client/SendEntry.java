package io.penstock.client;

import io.penstock.thrift.Code;
import io.penstock.thrift.Message;
import io.penstock.thrift.SendResult;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.function.IntToDoubleFunction;

/**
 * One message of a batch. Invariant: one whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later
 * answer tells that it is stored. A later refusal applies only to that later attempt.
 */
final class SendEntry {
  final Message message;
  private final Object key; // without one the message is a key of its own
  double dueAtMs;
  int attempts;
  boolean isSettled;
  int code = Code.UNAVAILABLE.getValue();
  private final boolean isRequest;
  private boolean isMaybeStored;
  private String error = "no proxy could be reached before the deadline";
  private SendResult answer;

  /** {@code isRequest}: a reply is waited for. */
  SendEntry(Message message, double dueAtMs, boolean isRequest) {
    this.message = message;
    this.isRequest = isRequest;
    key = message.isSetKey() ? List.of(message.getTopic(), message.getKey()) : this;
    this.dueAtMs = dueAtMs;
  }

  /** Checks a message that is to be sent, and gives it an id if it has none. */
  static void prepare(Message message) {
    if (message.getTopic() == null || message.getTopic().isEmpty()) {
      throw new IllegalArgumentException("message topic: missing");
    }
    if (message.getId() == null || message.getId().isEmpty()) {
      message.setId(UUID.randomUUID().toString().replace("-", ""));
    }
  }

  /**
   * The messages to send now. One waits while an earlier one of its key does: so a key keeps its order over retries. It
   * holds because a proxy that refuses a message stores none of its key's later messages of the same call.
   */
  static List<SendEntry> due(List<SendEntry> open, double nowMs) {
    Set<Object> held = new HashSet<>();
    List<SendEntry> due = new ArrayList<>();
    for (SendEntry each : open) {
      if (each.dueAtMs <= nowMs && !held.contains(each.key)) {
        due.add(each);
      } else {
        held.add(each.key);
      }
    }
    return due;
  }

  /** When the first message may be sent. */
  static double nextDueMs(List<SendEntry> open) {
    Set<Object> seen = new HashSet<>();
    return open.stream().filter(each -> seen.add(each.key)).mapToDouble(each -> each.dueAtMs).min().orElseThrow();
  }

  void answered(SendResult result, double nowMs, IntToDoubleFunction backoffMs) {
    attempts++;
    answer = result;
    code = result.getCode();
    error = result.getError();
    Action action = Action.of(code);
    if (isMaybeStored && (action == Action.REFUSED || action == Action.LATER || action == Action.ELSEWHERE)) {
      // What it says, also "not stored", is about this attempt alone.
      String told = error == null || error.isEmpty() ? "" : "; the last one was answered: " + error;
      error = "an earlier attempt may have stored it" + told;
      code = action == Action.REFUSED ? Code.TIMEOUT.getValue() : code;
    }
    if (isRequest && code == Code.DUPLICATE.getValue() && !result.isSetReply()) {
      code = Code.TIMEOUT.getValue();
      error = "stored by an earlier attempt, whose reply cannot be had";
    }
    switch (action) {
      case LATER -> dueAtMs = nowMs + pauseMs(code, result.getRetryAfterMs(), backoffMs.applyAsDouble(attempts));
      case UNKNOWN -> {
        dueAtMs = nowMs + pauseMs(code, result.getRetryAfterMs(), backoffMs.applyAsDouble(attempts));
        isMaybeStored = true;
      }
      case ELSEWHERE -> dueAtMs = nowMs;
      default -> isSettled = true;
    }
  }

  /** No answer came. It is due again at once: the pool has set that proxy aside. */
  void failed(String reason, boolean sent, double nowMs) {
    attempts += sent ? 1 : 0;
    isMaybeStored |= sent;
    error = reason;
    dueAtMs = nowMs;
  }

  /** Whether it was answered for good, or may be stored. */
  boolean hasOutcome() {
    return isSettled || isMaybeStored;
  }

  SendOutcome outcome() {
    if (!isSettled) {
      int last = isMaybeStored ? Code.TIMEOUT.getValue() : code;
      return new SendOutcome(last, message.getId(), null, null, error, null, attempts);
    }
    String id = answer.isSetId() ? answer.getId() : message.getId();
    Integer queue = answer.isSetQueue() ? answer.getQueue() : null;
    Long offset = answer.isSetOffset() ? answer.getOffset() : null;
    return new SendOutcome(code, id, queue, offset, error, answer.getReply(), attempts);
  }

  /** About how many bytes the message takes in a request. */
  long sizeBytes() {
    long size = 200 + message.getTopic().length() + (message.body == null ? 0 : message.body.remaining());
    size += message.isSetKey() ? 4L * message.getKey().length() : 0;
    if (message.isSetProperties()) {
      for (var each : message.getProperties().entrySet()) {
        size += 8 + 4L * (each.getKey().length() + each.getValue().length());
      }
    }
    return size;
  }

  /**
   * The pause after a refusal: what the proxy told (0: nothing) or the back-off, whichever is longer. At a rate limit
   * the proxy has promised a slot, which a longer pause would miss.
   */
  static double pauseMs(int code, int toldMs, double backoffMs) {
    return toldMs > 0 && code == Code.RATE_LIMITED.getValue() ? toldMs : Math.max(toldMs, backoffMs);
  }
}
