"""Driver over confluent-kafka, the binding of librdkafka: the protocol work is native and has threads of its own."""
