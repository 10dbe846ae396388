"""Archives: ranges of topics as partitioned Parquet files, with a manifest that proves them."""
