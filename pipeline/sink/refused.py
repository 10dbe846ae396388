"""Rows that were refused for good: written to a file per task beside the reason, so that none is lost."""

from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from pipeline.errors import RowsRefused
from pipeline.proxy.attempts import code_name
from pipeline.sink.ids import WriteWork
from pipeline.sink.messages import RowResult

CODE, ERROR, ID = "penstock_code", "penstock_error", "penstock_id"


class RefusedRows:
    """Collects the refused rows of a task.

    Args:
        path: a directory, on this machine or by the URL of a file system that Arrow knows; empty: the first refused row
            fails the task.
    """

    def __init__(self, path: str, work: WriteWork) -> None:
        self._path, self._work = path, work
        self._tables: list[pa.Table] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch, ids: pa.Array, refused: list[RowResult]) -> None:
        """Raises RowsRefused when there is no path for them."""
        if not refused:
            return
        if not self._path:
            first = refused[0]
            raise RowsRefused(
                f"{len(refused)} rows were refused, the first with id {ids[first.row].as_py()!r}: "
                f"{code_name(first.code)}: {first.error}: set refusedPath to keep refused rows and continue"
            )
        rows = pa.array([each.row for each in refused], pa.int64())
        table = pa.Table.from_batches([batch]).take(rows)
        table = table.append_column(CODE, pa.array([code_name(each.code) for each in refused], pa.string()))
        table = table.append_column(ERROR, pa.array([each.error for each in refused], pa.string()))
        self._tables.append(table.append_column(ID, ids.take(rows)))
        self.count += len(refused)

    def finish(self) -> str:
        """Write the file; returns its path, empty without refused rows. A repeated task replaces its file."""
        if not self._tables:
            return ""
        files, folder = pyarrow.fs.FileSystem.from_uri(self._path) if "://" in self._path else _local(self._path)
        files.create_dir(folder, recursive=True)
        name = f"{folder}/refused-{self._work.name}-{self._work.batch}-{self._work.partition}.parquet"
        with files.open_output_stream(name + ".part") as out:
            pq.write_table(pa.concat_tables(self._tables), out)
        files.move(name + ".part", name)
        return name


def _local(path: str) -> tuple[Any, str]:
    return pyarrow.fs.LocalFileSystem(), path
