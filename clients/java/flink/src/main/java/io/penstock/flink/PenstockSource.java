package io.penstock.flink;

import io.penstock.client.PenstockConsumer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Reads a topic by position, from its earliest stored message. Progress is in Flink's checkpoints alone: no group is
 * moved, and a job that is restored reads on at the offsets of its checkpoint. Queues that the topic gets later are
 * found.
 */
public final class PenstockSource implements Source<StoredMessage, QueueSplit, KnownQueues> {
  private final ProxyAccess proxies;
  private final String topic;
  private final String group;

  /** @param group whose grant is used */
  public PenstockSource(ProxyAccess proxies, String topic, String group) {
    this.proxies = proxies;
    this.topic = topic;
    this.group = group;
  }

  @Override
  public Boundedness getBoundedness() {
    return Boundedness.CONTINUOUS_UNBOUNDED;
  }

  @Override
  public SourceReader<StoredMessage, QueueSplit> createReader(SourceReaderContext context) {
    return new QueueReader(() -> new QueueSplitReader(consumer()), context);
  }

  @Override
  public SplitEnumerator<QueueSplit, KnownQueues> createEnumerator(SplitEnumeratorContext<QueueSplit> context) {
    return restoreEnumerator(context, new KnownQueues(0, List.of()));
  }

  @Override
  public SplitEnumerator<QueueSplit, KnownQueues> restoreEnumerator(
      SplitEnumeratorContext<QueueSplit> context, KnownQueues known) {
    return new QueueEnumerator(consumer(), topic, context, known);
  }

  @Override
  public SimpleVersionedSerializer<QueueSplit> getSplitSerializer() {
    return new QueueSplitSerializer();
  }

  @Override
  public SimpleVersionedSerializer<KnownQueues> getEnumeratorCheckpointSerializer() {
    return new KnownQueuesSerializer();
  }

  private PenstockConsumer consumer() {
    try {
      return proxies.consumer(group);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
