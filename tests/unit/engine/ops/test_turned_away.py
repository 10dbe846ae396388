"""Clients of a master that hands over are told to ask another broker; slaves and controllers are served."""

import pytest

from engine.link import layout
from engine.ops.errors import RequestError
from engine.ops.turned_away import turned_away


def test_clients_are_refused_with_not_master_and_the_others_are_served():
    served: list[str] = []
    handlers = {
        op: (lambda *_, op=op: served.append(op)) for op in (layout.APPEND, layout.PULL, layout.CANCEL, layout.STORED)
    }
    found = turned_away(handlers, "it hands over", {layout.STORED: handlers[layout.STORED]})
    for op in (layout.APPEND, layout.PULL):
        with pytest.raises(RequestError, match="it hands over") as refused:
            found[op](None, 7, b"")
        assert refused.value.code == layout.NOT_MASTER
    found[layout.STORED](None, 1, b"")
    found[layout.CANCEL](None, 1, b"")
    assert served == [layout.STORED, layout.CANCEL]


def test_a_frame_that_has_no_answer_is_dropped():
    found = turned_away({layout.FORWARDED: lambda *_: None}, "it hands over", {})
    found[layout.FORWARDED](None, layout.UNASKED, b"")
