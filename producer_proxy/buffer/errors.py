"""Errors of the fallback buffer.

PenstockError
└── BufferError_
    ├── BufferFull          code 203   no room by bytes, age, share or on the disk; nothing was stored
    ├── BufferUnavailable   code 203   the store cannot be used now; nothing was stored
    ├── BufferUncertain     code 300   it may be stored or not; repeating it under the same id is harmless
    └── BufferInUse                    another process holds the directory
"""

from common.errors import PenstockError


class BufferError_(PenstockError):
    """Base; the underscore avoids the name of Python's built-in BufferError."""


class BufferFull(BufferError_):
    retriable = True


class BufferUnavailable(BufferError_):
    retriable = True


class BufferUncertain(BufferError_):
    code = 300
    retriable = True


class BufferInUse(BufferError_):
    pass
