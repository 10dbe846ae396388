package io.penstock.client;

import io.penstock.thrift.Message;

/**
 * The outcome of one message after all retries.
 *
 * @param code see {@link io.penstock.thrift.Code}; a proxy may answer newer ones
 * @param queue null unless stored
 * @param offset in the queue; null unless stored, and while the message is in the fallback buffer (BUFFERED)
 * @param error one sentence; null when stored
 * @param reply of a request that was answered; else null
 * @param attempts that reached a proxy
 */
public record SendOutcome(
    int code, String id, Integer queue, Long offset, String error, Message reply, int attempts) {

  /** Stored. A request whose reply did not come is stored too, but not ok. */
  public boolean ok() {
    return Action.of(code) == Action.DONE;
  }

  PenstockException exception() {
    return new PenstockException(code, error, id);
  }
}
