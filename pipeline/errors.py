"""Errors of the pipeline.

PenstockError
├── OptionsError         options of a read or write are wrong; names all of them
└── PipelineError        a job cannot continue
    ├── ReplyError           a reply is malformed; names the byte
    ├── CallRefused          a proxy refused a call for good, or no proxy answered before the deadline
    ├── DataLost             messages of the range are no longer stored, and failOnDataLoss is true
    ├── RowsRefused          rows were refused, and no path for refused rows is given
    ├── ArchiveDamaged       files of an archive do not match its manifest
    ├── NothingToCompare     the sides of a comparison have no common range
    └── ConsoleRefused       the console does not answer, or refused a call
"""

from common.errors import PenstockError


class OptionsError(PenstockError):
    """All faults of the options at once, each with the option and the values that it takes."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("options of format penstock: " + "; ".join(faults))
        self.faults = faults

    def __reduce__(self) -> tuple:
        return type(self), (self.faults,)


class PipelineError(PenstockError):
    pass


class ReplyError(PipelineError):
    pass


class CallRefused(PipelineError):
    pass


class DataLost(PipelineError):
    pass


class RowsRefused(PipelineError):
    pass


class ArchiveDamaged(PipelineError):
    pass


class NothingToCompare(PipelineError):
    pass


class ConsoleRefused(PipelineError):
    pass
