package io.penstock.client;

/** One call at one endpoint brought no answer of the contract. Unless {@code sent}, no proxy has done it. */
final class CallFailed extends Exception {
  final boolean sent;

  CallFailed(String reason, Throwable cause, boolean sent) {
    super(reason, cause);
    this.sent = sent;
  }
}
