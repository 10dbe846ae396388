"""What can go wrong on a link."""


class LinkError(Exception):
    """The other end answered, but refused or does not speak this version. The text is one sentence for a person."""


class LinkDown(LinkError):
    """There is no connection at the moment; nothing was sent. Retriable."""
