"""The data source `penstock` of Spark: options in, readers and writers out."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pipeline.options import ReadOptions, read_options
from pipeline.source.batch_reader import PenstockReader
from pipeline.source.schema import schema_of
from pipeline.source.stream_reader import PenstockStreamReader


class PenstockSource(DataSource):
    """Spark finds it through module `pyspark_penstock`, without registration.

    Only the path of the credential's file is in the options: no plan, log or page of Spark shows the secret.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return schema_of(self._read_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        return PenstockReader(self._read_options())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PenstockStreamReader(self._read_options())

    def _read_options(self) -> ReadOptions:
        return read_options(self.options)
