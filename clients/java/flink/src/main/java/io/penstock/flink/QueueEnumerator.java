package io.penstock.flink;

import io.penstock.client.Action;
import io.penstock.client.PenstockConsumer;
import io.penstock.thrift.Code;
import io.penstock.thrift.Position;
import io.penstock.thrift.PositionReport;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;

/** Finds the queues of a topic and gives queue q to reader q modulo their number. Runs in the job manager. */
final class QueueEnumerator implements SplitEnumerator<QueueSplit, KnownQueues> {
  private static final long LOOK_MS = 30_000;
  private static final int ASKED = 16;

  private final PenstockConsumer consumer;
  private final String topic;
  private final SplitEnumeratorContext<QueueSplit> context;
  private final List<QueueSplit> unassigned;
  private int count;

  QueueEnumerator(
      PenstockConsumer consumer, String topic, SplitEnumeratorContext<QueueSplit> context, KnownQueues known) {
    this.consumer = consumer;
    this.topic = topic;
    this.context = context;
    count = known.count();
    unassigned = new ArrayList<>(known.unassigned());
  }

  @Override
  public void start() {
    context.callAsync(() -> queuesFrom(count), this::add, 0, LOOK_MS);
  }

  /** The contract does not tell the number of queues: a position of a queue that does not exist is INVALID. */
  private List<QueueSplit> queuesFrom(int first) throws IOException {
    List<QueueSplit> found = new ArrayList<>();
    for (int next = first; next == first + found.size(); next += ASKED) {
      List<Position> asked = new ArrayList<>();
      for (int queue = next; queue < next + ASKED; queue++) {
        asked.add(new Position(topic, queue));
      }
      for (PositionReport report : consumer.read(asked, 0, Duration.ZERO).getPositions()) {
        if (report.getCode() == Code.INVALID.getValue() && report.getQueue() > 0) {
          break;
        }
        if (Action.of(report.getCode()) != Action.DONE) {
          throw new IOException(QueueSplitReader.reason(report));
        }
        found.add(new QueueSplit(topic, report.getQueue(), report.getMinOffset()));
      }
    }
    return found;
  }

  private void add(List<QueueSplit> found, Throwable error) {
    if (error != null) {
      throw new IllegalStateException("topic " + topic + ": its queues could not be read", error);
    }
    for (QueueSplit each : found) {
      if (each.queue() == count) { // another look may have found it before
        unassigned.add(each);
        count++;
      }
    }
    assign();
  }

  private void assign() {
    for (Iterator<QueueSplit> all = unassigned.iterator(); all.hasNext(); ) {
      QueueSplit each = all.next();
      int reader = each.queue() % context.currentParallelism();
      if (context.registeredReaders().containsKey(reader)) {
        context.assignSplit(each, reader);
        all.remove();
      }
    }
  }

  @Override
  public void addReader(int reader) {
    assign();
  }

  @Override
  public void addSplitsBack(List<QueueSplit> splits, int reader) {
    unassigned.addAll(splits);
    assign();
  }

  @Override
  public KnownQueues snapshotState(long checkpoint) {
    return new KnownQueues(count, List.copyOf(unassigned));
  }

  @Override
  public void handleSplitRequest(int reader, String host) {} // queues are assigned without a request

  @Override
  public void close() {
    consumer.close();
  }
}
