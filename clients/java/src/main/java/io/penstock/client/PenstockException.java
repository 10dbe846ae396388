package io.penstock.client;

/** A refusal, or an outcome that is not success, after all retries. */
public class PenstockException extends RuntimeException {
  private final int code;
  private final String messageId;

  PenstockException(int code, String reason, String messageId) {
    super(Action.nameOf(code) + ": " + (reason == null ? "no reason given" : reason)
        + (messageId == null ? "" : " (message id " + messageId + ")"));
    this.code = code;
    this.messageId = messageId;
  }

  PenstockException(String reason) {
    super(reason);
    this.code = -1;
    this.messageId = null;
  }

  /** The result code (see {@link io.penstock.thrift.Code}); -1 for a {@link ContractException}. */
  public int code() {
    return code;
  }

  /** The message may have been stored all the same: send it again only with the same {@link #messageId}. */
  public boolean maybeStored() {
    return code >= 0 && Action.of(code) == Action.UNKNOWN;
  }

  /** The id that the message was sent with; null for a pull. */
  public String messageId() {
    return messageId;
  }
}
