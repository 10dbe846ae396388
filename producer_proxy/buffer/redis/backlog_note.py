"""A file beside the disk buffer: Redis may have entries of this proxy, which Redis that is, and in which of its slots.

    the id of the Redis ‖ "\\n" ‖ the numbers of the slots, separated by spaces

A start reads it while Redis does not answer, and compares it with the Redis that answers. Another proxy may drain such
a slot by then.
"""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

from common.config import files
from common.limited_log import LimitedLog
from producer_proxy.buffer.disk.threads import in_thread

limited = LimitedLog(logging.getLogger("penstock.producer_proxy.buffer"))


class BacklogNote:
    """
    Args:
        path: None: there is no disk buffer, so no note.
    Attributes:
        is_set: Redis may have entries.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._met = path, ""
        self.is_set = path is not None and path.exists()
        self._found, self._slots = _read(path) if path is not None and self.is_set else ("", frozenset[int]())
        self._written: tuple[str, frozenset[int]] | None = None

    def set(self, slot: int) -> None:
        """Durable on return, unless the disk refuses. Blocks the greenlet. Called before an entry goes to this slot."""
        if self._path is None or (slot in self._slots and self._written == (self._met, self._slots)):
            return
        self._slots |= {slot}
        self._written = self._met, self._slots
        text = f"{self._met}\n{' '.join(map(str, sorted(self._slots)))}\n"
        try:
            in_thread(files.replace, self._path, text.encode())
        except OSError as error:
            limited.warning("buffer=redis: a restart will not know of its entries in Redis: %s", error)
        self.is_set = True

    def meets_another(self, redis_id: str | None) -> bool:
        """Take the id of the Redis that answers; None: it has none.

        Returns whether the note of before this start names another one than the first that answers: told, and True once.
        """
        self._met = redis_id or ""
        found, self._found = self._found, ""
        if not found or not redis_id or found == redis_id:
            return False
        self._slots = frozenset()
        limited.error(
            "buffer=redis: it had entries of this proxy before the restart, and has been emptied or is another Redis: messages "
            "that were answered BUFFERED are gone, or are in the other one"
        )
        return True

    def parts_of(self, filled: Mapping[int, Collection[int]]) -> frozenset[int]:
        """The parts of the noted slots among these."""
        return frozenset(part for slot in self._slots & filled.keys() for part in filled[slot])

    def keep(self, ours: Collection[int], elsewhere: Collection[int]) -> None:
        """Note only these slots, which have entries; remove the file once there are none.

        Not durable on return: a file that is found again is removed again.

        Args:
            ours: slots that this proxy drains. elsewhere: those of others.
        """
        self._slots &= {*ours, *elsewhere}
        if self.is_set and self._path is not None and not self._slots and not ours:
            self._path.unlink(missing_ok=True)
            self.is_set = False


NO_NOTE = BacklogNote(None)


def _read(path: Path) -> tuple[str, frozenset[int]]:
    """The id and the slots; an unreadable file has none."""
    try:
        redis_id, _, slots = path.read_text(errors="replace").partition("\n")
    except OSError:
        return "", frozenset()
    return redis_id.strip(), frozenset(int(slot) for slot in slots.split() if slot.isdecimal())
