package io.penstock.flink;

import org.apache.flink.api.connector.source.SourceSplit;

/** One queue of a topic and the offset to read next: what a checkpoint keeps. */
record QueueSplit(String topic, int queue, long offset) implements SourceSplit {

  @Override
  public String splitId() {
    return idOf(topic, queue);
  }

  static String idOf(String topic, int queue) {
    return topic + "/" + queue;
  }
}
