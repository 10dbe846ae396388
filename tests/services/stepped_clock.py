"""Wall clock that a test steps in one running process; the monotonic clock is unchanged."""

import shutil
import subprocess
from pathlib import Path

from tests.services import require

SOURCE = Path(__file__).with_suffix(".c")


class SteppedClock:
    """
    Attributes:
        environment: what the process needs.
    """

    def __init__(self, folder: Path) -> None:
        require(shutil.which("cc"), "cc, for a library that steps a process's clock")
        library = folder / "stepped_clock.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, capture_output=True
        )
        self._file = folder / "step"
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._file)}

    def step(self, ms: int) -> None:
        """Set the process's wall clock ahead of the machine's, from now on."""
        with self._file.open("r+b") as file:
            file.write(ms.to_bytes(8, "little", signed=True))
