package io.penstock.client;

/** A batching producer holds as much as it may. The message was not taken. */
public final class FullException extends RuntimeException {
  FullException(String reason) {
    super(reason);
  }
}
