"""Found by Spark by its name: importable modules `pyspark_…` with a class `DefaultSource` are data sources."""

from pipeline.data_source import PenstockSource


class DefaultSource(PenstockSource):
    pass
