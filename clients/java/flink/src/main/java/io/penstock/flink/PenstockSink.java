package io.penstock.flink;

import io.penstock.client.PenstockProducer;
import io.penstock.client.SendOutcome;
import io.penstock.thrift.Message;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/**
 * Sends to a topic. A checkpoint waits until everything before it is stored. A restored job sends what came after its
 * checkpoint again, with the same ids, and the topic stores an id once within its window (--id-window-s).
 */
public final class PenstockSink implements Sink<OutgoingMessage> {
  private final ProxyAccess proxies;
  private final String topic;

  public PenstockSink(ProxyAccess proxies, String topic) {
    this.proxies = proxies;
    this.topic = topic;
  }

  @Override
  public SinkWriter<OutgoingMessage> createWriter(WriterInitContext context) throws IOException {
    return new Writer(proxies.producer(), topic);
  }

  private static final class Writer implements SinkWriter<OutgoingMessage> {
    private static final int PER_CALL = 500;

    private final PenstockProducer producer;
    private final String topic;
    private final List<Message> waiting = new ArrayList<>();

    Writer(PenstockProducer producer, String topic) {
      this.producer = producer;
      this.topic = topic;
    }

    @Override
    public void write(OutgoingMessage each, Context context) throws IOException {
      waiting.add(new Message(topic).setId(each.id()).setKey(each.key()).setBody(each.body()));
      if (waiting.size() >= PER_CALL) {
        flush(false);
      }
    }

    @Override
    public void flush(boolean isEnd) throws IOException {
      for (SendOutcome each : producer.sendAll(waiting)) {
        if (!each.ok()) { // the job fails, and is restored from its last checkpoint
          throw new IOException("topic " + topic + ", message id " + each.id() + ": code " + each.code() + ": " + each.error());
        }
      }
      waiting.clear();
    }

    @Override
    public void close() {
      producer.close();
    }
  }
}
