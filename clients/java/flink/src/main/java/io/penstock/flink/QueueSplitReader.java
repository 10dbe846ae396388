package io.penstock.flink;

import io.penstock.client.Action;
import io.penstock.client.PenstockConsumer;
import io.penstock.thrift.Delivery;
import io.penstock.thrift.Position;
import io.penstock.thrift.PositionReport;
import io.penstock.thrift.PullResponse;
import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.connector.base.source.reader.RecordsBySplits;
import org.apache.flink.connector.base.source.reader.RecordsWithSplitIds;
import org.apache.flink.connector.base.source.reader.splitreader.SplitReader;
import org.apache.flink.connector.base.source.reader.splitreader.SplitsChange;

/** Reads all queues of one reader, in a thread of its own: one pull with a position per queue. */
final class QueueSplitReader implements SplitReader<Delivery, QueueSplit> {
  private static final int MESSAGES_MAX = 1_000;
  private static final Duration WAIT = Duration.ofMillis(200); // a new split is read after so long

  private final PenstockConsumer consumer;
  private final Map<String, Position> positions = new LinkedHashMap<>();

  QueueSplitReader(PenstockConsumer consumer) {
    this.consumer = consumer;
  }

  @Override
  public RecordsWithSplitIds<Delivery> fetch() throws IOException {
    RecordsBySplits.Builder<Delivery> records = new RecordsBySplits.Builder<>();
    PullResponse response = consumer.read(List.copyOf(positions.values()), MESSAGES_MAX, WAIT);
    for (Delivery each : response.getDeliveries()) {
      records.add(QueueSplit.idOf(each.getMessage().getTopic(), each.getQueue()), each);
    }
    for (PositionReport report : response.getPositions()) {
      switch (Action.of(report.getCode())) {
        case DONE ->
            positions.get(QueueSplit.idOf(report.getTopic(), report.getQueue())).setOffset(report.getNextOffset());
        case REFUSED -> throw new IOException(reason(report)); // such as retention that overtook the job
        default -> {} // its broker is away: the next pull asks for the same offset
      }
    }
    return records.build();
  }

  @Override
  public void handleSplitsChanges(SplitsChange<QueueSplit> change) {
    for (QueueSplit each : change.splits()) {
      positions.put(each.splitId(), new Position(each.topic(), each.queue()).setOffset(each.offset()));
    }
  }

  @Override
  public void wakeUp() {} // a pull ends soon

  @Override
  public void close() {
    consumer.close();
  }

  static String reason(PositionReport report) {
    return "topic " + report.getTopic() + " queue " + report.getQueue() + ": " + Action.nameOf(report.getCode()) + ": "
        + report.getError();
  }
}
