"""InCopies of Kafka topics into the engine. See README.md."""
