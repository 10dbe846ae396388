"""Errors of a link.

LinkError          the other end refused, or does not speak this version
├── LinkDown       there is no connection; nothing was sent
└── PayloadError   a payload is not as this package lays it out
"""


class LinkError(Exception):
    """The other end answered, but refused or does not speak this version. The text is one sentence for a person."""


class LinkDown(LinkError):
    """There is no connection at the moment; nothing was sent. Retriable."""


class PayloadError(LinkError):
    """The bytes of a request or an answer are cut off, damaged or lie about a count. Not retriable."""
