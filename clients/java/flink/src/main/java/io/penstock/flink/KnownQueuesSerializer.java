package io.penstock.flink;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/** The number of known queues, and the unassigned ones with their number. */
final class KnownQueuesSerializer implements SimpleVersionedSerializer<KnownQueues> {
  private static final int SIZE = 64; // it grows

  @Override
  public int getVersion() {
    return 1;
  }

  @Override
  public byte[] serialize(KnownQueues known) throws IOException {
    DataOutputSerializer out = new DataOutputSerializer(SIZE);
    out.writeInt(known.count());
    out.writeInt(known.unassigned().size());
    for (QueueSplit each : known.unassigned()) {
      QueueSplitSerializer.write(each, out);
    }
    return out.getCopyOfBuffer();
  }

  @Override
  public KnownQueues deserialize(int version, byte[] bytes) throws IOException {
    DataInputDeserializer in = new DataInputDeserializer(bytes);
    int count = in.readInt();
    List<QueueSplit> unassigned = new ArrayList<>();
    for (int left = in.readInt(); left > 0; left--) {
      unassigned.add(QueueSplitSerializer.read(in));
    }
    return new KnownQueues(count, unassigned);
  }
}
