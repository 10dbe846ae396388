"""The directory of an archive: on this machine, or by a URL of a file system that Arrow knows (s3, hdfs, gs)."""

import json
from typing import Any

import pyarrow.fs as pafs

MANIFEST, WORK = "_manifest", "_work"
"""Spark leaves folders with a leading underscore out of a table."""


class ArchivePlace:
    """Files by their path in the archive. Make one per task: a handle of a file system is not sent to workers."""

    def __init__(self, url: str) -> None:
        if "://" in url:
            self.files, self._root = pafs.FileSystem.from_uri(url)
        else:
            self.files, self._root = pafs.LocalFileSystem(), url.rstrip("/") or "/"

    def path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def names(self, folder: str) -> list[str]:
        """All files below a folder, by their path in the archive; none when it does not exist."""
        return sorted(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of all files below a folder, by their path in the archive."""
        chosen = pafs.FileSelector(self.path(folder), recursive=True, allow_not_found=True)
        found = [each for each in self.files.get_file_info(chosen) if each.is_file]
        return {each.path[each.path.index(self._root) + len(self._root) + 1 :]: each.size for each in found}

    def exists(self, name: str) -> bool:
        return self.files.get_file_info(self.path(name)).is_file

    def read_json(self, name: str) -> Any:
        with self.files.open_input_stream(self.path(name)) as source:
            return json.loads(source.read())

    def write_json(self, name: str, value: Any) -> None:
        """Write a file that is there as a whole or not at all."""
        self.write_text(name, json.dumps(value, indent=1))

    def write_text(self, name: str, text: str) -> None:
        """Write a file that is there as a whole or not at all."""
        work = self.make_work(name)
        with self.files.open_output_stream(self.path(work)) as out:
            out.write(text.encode())
        self.publish(work, name)

    def make_work(self, name: str) -> str:
        """The path of a file that is being written, in its folder."""
        self.files.create_dir(self.path(WORK), recursive=True)
        return f"{WORK}/{name.replace('/', '~')}"

    def publish(self, work: str, name: str) -> None:
        """Rename a finished file to its name; it replaces an earlier one."""
        self.files.create_dir(self.path(name).rpartition("/")[0], recursive=True)
        self.files.move(self.path(work), self.path(name))

    def remove(self, name: str) -> None:
        """Delete a file; one that is gone already is no error."""
        if self.exists(name):
            self.files.delete_file(self.path(name))

    def remove_folder(self, name: str) -> None:
        """Delete a folder with all in it; one that is not there is no error."""
        if self.files.get_file_info(self.path(name)).type == pafs.FileType.Directory:
            self.files.delete_dir(self.path(name))
