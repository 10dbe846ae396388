package io.penstock.client;

import io.penstock.thrift.Code;
import io.penstock.thrift.Message;
import io.penstock.thrift.SendResult;
import java.util.function.IntToDoubleFunction;

/**
 * One message of a batch. Invariant: one whose outcome was once unknown is reported as unknown (TIMEOUT) unless a later
 * answer settles it. A later "not stored" applies only to that later attempt.
 */
final class SendEntry {
  final Message message;
  double dueAtMs;
  int attempts;
  boolean isSettled;
  int code = Code.UNAVAILABLE.getValue();
  private boolean isMaybeStored;
  private String error = "no proxy could be reached before the deadline";
  private SendResult answer;

  SendEntry(Message message, double dueAtMs) {
    this.message = message;
    this.dueAtMs = dueAtMs;
  }

  void answered(SendResult result, double nowMs, IntToDoubleFunction backoffMs) {
    attempts++;
    answer = result;
    code = result.getCode();
    error = result.getError();
    switch (Action.of(code)) {
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
  void failed(CallFailed failure, double nowMs) {
    attempts += failure.sent ? 1 : 0;
    isMaybeStored |= failure.sent;
    error = failure.getMessage();
    dueAtMs = nowMs;
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
