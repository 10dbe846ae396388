"""Errors that stop a benchmark.

BenchError
├── NativeMissingError   the generator is not built
├── InstanceError        no server to measure: it did not start, is not running, or refused a command
└── RunError             the run failed: a connection, an answer or a result code
"""


class BenchError(Exception):
    """Base of benchmark errors; the text is one sentence for the terminal."""


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
