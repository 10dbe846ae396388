package io.penstock.flink;

/** A message to send. A topic stores an id once, so a job that computes its ids may send a message again. */
public record OutgoingMessage(String id, String key, byte[] body) {}
