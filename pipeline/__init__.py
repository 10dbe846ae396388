"""The data pipeline: Spark reads from Penstock, writes to it and archives its topics."""
