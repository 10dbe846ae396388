"""A simulated machine with sectors that cannot be read."""

import errno

from engine.env.simulated import SimulatedEnv


class FailingDisk(SimulatedEnv):
    """Sectors of files by the end of their path, with one address of each, that cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: dict[str, int] = {}

    def open(self, path, *, create=False):
        file = super().open(path, create=create)
        read_at = file.read_at

        def read(size: int, start: int) -> bytes:
            for end, at in self.bad.items():
                if path.endswith(end) and start <= at < start + size:
                    raise OSError(errno.EIO, "Input/output error", path)
            return read_at(size, start)

        file.read_at = read
        return file
