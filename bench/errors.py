"""What can stop a benchmark.

BenchError
├── NativeMissingError   the generator is not built
├── InstanceError        no server to measure: did not start, is not running, refused a command
└── RunError             the run broke off: a connection, an answer or a code that must not be
"""


class BenchError(Exception):
    """One sentence for the person at the terminal."""


class NativeMissingError(BenchError):
    def __init__(self) -> None:
        super().__init__(
            "penstock bench needs its native load generator, which is not built here: install a C compiler (Debian: apt install gcc) "
            "and Penstock again. A generator in pure Python would measure itself and not the servers."
        )


class InstanceError(BenchError):
    pass


class RunError(BenchError):
    pass
