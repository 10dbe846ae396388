package io.penstock.client;

import java.time.Duration;

/** When a {@link BatchingProducer} sends; each setter returns this. Not to be changed once a producer is made of it. */
public final class Batching {
  double lingerMs = 5;
  long bytes = 256 << 10;
  int messages = PenstockProducer.CALL_MESSAGES_MAX;
  long bytesMax = 32 << 20;
  double fullWaitMs = 10_000;

  /** A message waits for others at most this long. Default 5 ms. */
  public Batching linger(Duration value) {
    lingerMs = value.toNanos() / 1e6;
    return this;
  }

  /** A call is made at once when so many bytes wait. Default 256 KiB. */
  public Batching bytes(long value) {
    bytes = value;
    return this;
  }

  /** A call is made at once when so many messages wait. Default 1,000. */
  public Batching messages(int value) {
    messages = value;
    return this;
  }

  /** {@code send} waits while so many bytes wait or are on their way. Default 32 MiB. */
  public Batching bytesMax(long value) {
    bytesMax = value;
    return this;
  }

  /** After this time without room {@code send} throws {@link FullException}. Default 10 s. */
  public Batching fullWait(Duration value) {
    fullWaitMs = value.toNanos() / 1e6;
    return this;
  }
}
