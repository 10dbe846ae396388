"""States of the conditions that /readyz shows: True, a Note, or a sentence that says why the process is not ready."""


class Note(str):
    """A state that an operator must know of, though the process is ready."""

    __slots__ = ()


def is_ready(state: bool | str) -> bool:
    """Whether the condition lets the process serve."""
    return state is True or isinstance(state, Note)
