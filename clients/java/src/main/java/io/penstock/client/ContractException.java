package io.penstock.client;

/** No endpoint implements this contract: none is such a proxy. Nothing is stored, and retrying cannot help. */
public final class ContractException extends PenstockException {
  final boolean sent; // a proxy may have done the call

  ContractException(String reason, boolean sent) {
    super(reason);
    this.sent = sent;
  }
}
