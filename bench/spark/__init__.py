"""The data source of Spark beside Spark's own Kafka source and sink."""
