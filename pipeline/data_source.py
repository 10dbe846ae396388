"""The data source `penstock` of Spark: options in, readers and writers out."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pipeline.errors import OptionsError
from pipeline.options import ReadOptions, WriteOptions, read_options, write_options
from pipeline.sink.rows import check_rows
from pipeline.sink.writer import PenstockStreamWriter, PenstockWriter
from pipeline.source.batch_reader import PenstockReader, PruningReader
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
        options = self._read_options()
        return PruningReader(options) if options.push_filters else PenstockReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PenstockStreamReader(self._read_options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return PenstockWriter(self._write_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        checkpoint = {name.lower(): value for name, value in self.options.items()}.get("checkpointlocation", "")
        return PenstockStreamWriter(self._write_options(schema, overwrite), checkpoint)

    def _write_options(self, schema: StructType, overwrite: bool) -> WriteOptions:
        options = write_options(self.options)
        if overwrite:
            raise OptionsError(["mode overwrite: use append: messages are not replaced"])
        check_rows(options, schema)
        return options

    def _read_options(self) -> ReadOptions:
        return read_options(self.options)
