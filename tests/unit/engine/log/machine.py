"""A log under test with the few verbs that tests use again and again."""

from engine.config import LogConfig
from engine.env.base import Env

SEGMENT = 8192
NOW = 1_700_000_000_000


class Machine:
    """An environment, a directory, and the log that is open in it: topics 1 (4 queues) and 2 (1 queue)."""

    def __init__(self, form, env: Env, directory: str, segment_bytes: int = SEGMENT, **settings) -> None:
        self.form, self.env, self.directory = form, env, directory
        self.config = LogConfig(segment_bytes=segment_bytes, **settings)
        self.log = None
        self.open()
        if not self.log.topics():
            self.log.create_topics([("first", 4), ("second", 1)])

    def open(self, form=None):
        """Recover."""
        self.log = (form or self.form).log.open_log(self.env, self.directory, self.config)
        return self.log

    def close(self) -> None:
        """Close the log if it is open."""
        if self.log is not None:
            self.log.close()
            self.log = None

    def reopen(self, form=None):
        """Stop and start."""
        self.close()
        return self.open(form)

    def crash(self, random=None):
        """Cut the power of a simulated machine and start again."""
        self.log = None
        self.env.crash(random)
        return self.open()

    def kill(self):
        """kill -9 on a simulated machine, and start again."""
        self.log = None
        self.env.end_process()
        return self.open()

    def batch(self, topic_id: int, queue: int, bodies: list[bytes], kind: int = 0) -> bytes:
        """A batch as a proxy makes it."""
        return self.form.format.pack_batch(
            kind, topic_id, queue, [self.form.format.pack_record(body) for body in bodies]
        )

    def append(self, topic_id: int, queue: int, *bodies: bytes) -> int:
        """Append one batch and return its base offset."""
        ((code, offset),) = self.log.append(self.batch(topic_id, queue, list(bodies)), 1, NOW)
        assert code == 0, code
        return offset

    def bodies(
        self, topic_id: int, queue: int, offset: int = 0, max_records: int = 1000, max_bytes: int = 1 << 20
    ) -> list[bytes]:
        """Bodies from `offset` to the end, in reads of that size."""
        found = []
        while True:
            pieces = self.log.read(topic_id, queue, offset, max_records, max_bytes)
            if not pieces:
                return found
            for piece in pieces:
                assert piece.first_offset == offset
                records = list(self.form.format.split_records(piece.records))
                assert len(records) == piece.count
                found += records
                offset += piece.count

    def durable(self) -> bool:
        """Sync; whether the callback came."""
        came = []
        self.log.when_durable(self.log.end_position, lambda: came.append(True))
        return bool(came)

    def file(self, suffix: str = ".seg", at: int = -1) -> str:
        """Path of a file of the log, by default the last segment that is not empty."""
        names = [name for name in self.env.list(f"{self.directory}/log") if name.endswith(suffix)]
        if suffix == ".seg" and at == -1:
            base = self.log.appender.segment_base if self.log is not None else int(names[-2][:20])
            return f"{self.directory}/log/{base:020d}.seg"
        return f"{self.directory}/log/{names[at]}"

    def damage(self, path: str, at: int, data: bytes) -> None:
        """Overwrite bytes of a simulated file, durably."""
        content = self.env.files[path]
        content.seen[at : at + len(data)] = data
        content.sync()
