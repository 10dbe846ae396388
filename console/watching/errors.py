"""Errors of watching.

PenstockError
└── ConsoleError
    └── NoticeFailed   a notice did not arrive; it is tried again
"""

from console.errors import ConsoleError


class NoticeFailed(ConsoleError):
    pass
