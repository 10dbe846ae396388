"""Errors of rehearsals.

PenstockError
└── RehearsalFailed      it cannot go on; the sentence says why
"""

from common.errors import PenstockError


class RehearsalFailed(PenstockError):
    pass
