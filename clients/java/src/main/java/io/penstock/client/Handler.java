package io.penstock.client;

import io.penstock.thrift.Delivery;
import io.penstock.thrift.Verdict;

/** Handles one delivery of {@link PenstockConsumer#run}. */
@FunctionalInterface
public interface Handler {
  /**
   * Called by a worker thread of the loop.
   *
   * @return DONE, RETRY or REJECT; null: DONE
   * @throws Exception the message is redelivered after the group's back-off, with the exception as reason
   */
  Verdict handle(Delivery delivery) throws Exception;
}
