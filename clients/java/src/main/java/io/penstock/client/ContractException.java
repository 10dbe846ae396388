package io.penstock.client;

/** The other end does not implement this contract: the endpoint is not such a proxy. Retrying cannot help. */
public final class ContractException extends PenstockException {
  ContractException(String reason) {
    super(reason);
  }
}
