package io.penstock.client;

/** One call at one endpoint brought no answer. Unless {@code sent}, no byte of it left this machine. */
final class CallFailed extends Exception {
  final boolean sent;

  CallFailed(String reason, Throwable cause, boolean sent) {
    super(reason, cause);
    this.sent = sent;
  }
}
