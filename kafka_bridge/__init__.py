"""The bridge to Kafka clusters: one process per machine, beside the proxies. See README.md."""
