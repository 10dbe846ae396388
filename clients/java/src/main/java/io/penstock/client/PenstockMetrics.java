package io.penstock.client;

import io.penstock.thrift.Delivery;
import io.penstock.thrift.Verdict;

/** Called as things happen, by the thread concerned: return soon and do not throw. */
public interface PenstockMetrics {
  /** One attempt at one proxy has ended. The failure is null for an answer, whatever its code. */
  default void call(String method, String endpoint, double tookMs, Exception failure) {}

  /** The final outcome of one message, after all retries. */
  default void sent(SendOutcome outcome) {}

  /** A handler of a run has ended. */
  default void handled(Delivery delivery, Verdict verdict, double tookMs) {}
}
