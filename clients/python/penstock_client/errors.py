"""PenstockError ─┬─ SendError      one message was not stored, or may not be; `result` says which
                 ├─ PullError      no proxy answered in time, or the pull was refused
                 ├─ ContractError  no endpoint implements this contract; retrying cannot help
                 ├─ FullError      a batching producer holds as much as it may; the message was not taken
                 └─ ClosedError    a batching producer was closed before it sent the message: it is not stored
CallFailed stays inside: a connection broke, and whether the call was done is unknown (or `sent` is False).
"""

from penstock_client.codes import Action, action_of, name_of


class PenstockError(Exception):
    pass


class SendError(PenstockError):
    def __init__(self, result) -> None:
        self.result = result
        super().__init__(f"{name_of(result.code)}: {result.error or 'no reason given'} (message id {result.id})")

    @property
    def maybe_stored(self) -> bool:
        """True: send again only with the same id."""
        return action_of(self.result.code) is Action.UNKNOWN


class PullError(PenstockError):
    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(f"{name_of(code)}: {reason}")


class ContractError(PenstockError):
    """`sent` False: no proxy has done the call."""

    def __init__(self, reason: str, *, sent: bool = False) -> None:
        self.sent = sent
        super().__init__(reason)


class FullError(PenstockError):
    pass


class ClosedError(PenstockError):
    pass


class CallFailed(Exception):
    """One call at one endpoint brought no answer of the contract. `sent` False: no proxy has done it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(reason)
