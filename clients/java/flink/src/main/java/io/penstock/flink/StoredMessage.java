package io.penstock.flink;

import io.penstock.thrift.Delivery;

/** A message as it was read. Key and body may be null. */
public record StoredMessage(String topic, int queue, long offset, String id, String key, byte[] body) {

  static StoredMessage of(Delivery delivery) {
    var message = delivery.getMessage();
    return new StoredMessage(message.getTopic(), delivery.getQueue(), delivery.getOffset(), delivery.getId(),
        message.getKey(), message.getBody());
  }
}
