package io.penstock.flink;

import io.penstock.thrift.Delivery;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.base.source.reader.SingleThreadMultiplexSourceReaderBase;
import org.apache.flink.connector.base.source.reader.splitreader.SplitReader;

/** One parallel instance of the source: emits what its split reader has read, and keeps the offsets that follow. */
final class QueueReader
    extends SingleThreadMultiplexSourceReaderBase<Delivery, StoredMessage, QueueSplit, QueueReader.Progress> {

  /** The queue's progress in the stream: the offset after the last message that was emitted. */
  static final class Progress {
    final QueueSplit split;
    long next;

    Progress(QueueSplit split) {
      this.split = split;
      next = split.offset();
    }
  }

  QueueReader(Supplier<SplitReader<Delivery, QueueSplit>> splitReader, SourceReaderContext context) {
    super(
        splitReader,
        (delivery, output, progress) -> {
          output.collect(StoredMessage.of(delivery), delivery.getStoredAtMs());
          progress.next = delivery.getOffset() + 1;
        },
        context.getConfiguration(),
        context);
  }

  @Override
  protected Progress initializedState(QueueSplit split) {
    return new Progress(split);
  }

  @Override
  protected QueueSplit toSplitType(String id, Progress progress) {
    return new QueueSplit(progress.split.topic(), progress.split.queue(), progress.next);
  }

  @Override
  protected void onSplitFinished(Map<String, Progress> finished) {} // a queue has no end
}
