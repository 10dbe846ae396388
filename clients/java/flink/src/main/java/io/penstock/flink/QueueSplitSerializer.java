package io.penstock.flink;

import java.io.IOException;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.core.memory.DataOutputView;

/** A split as topic, queue and offset. */
final class QueueSplitSerializer implements SimpleVersionedSerializer<QueueSplit> {
  private static final int SIZE = 64; // it grows

  static void write(QueueSplit split, DataOutputView out) throws IOException {
    out.writeUTF(split.topic());
    out.writeInt(split.queue());
    out.writeLong(split.offset());
  }

  static QueueSplit read(DataInputView in) throws IOException {
    return new QueueSplit(in.readUTF(), in.readInt(), in.readLong());
  }

  @Override
  public int getVersion() {
    return 1;
  }

  @Override
  public byte[] serialize(QueueSplit split) throws IOException {
    DataOutputSerializer out = new DataOutputSerializer(SIZE);
    write(split, out);
    return out.getCopyOfBuffer();
  }

  @Override
  public QueueSplit deserialize(int version, byte[] bytes) throws IOException {
    return read(new DataInputDeserializer(bytes));
  }
}
