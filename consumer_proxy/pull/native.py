"""Selects the native or the reference form of a pull's byte work."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("consumer_proxy.pull", "_deliver", "_read_call")
if NATIVE and not TYPE_CHECKING:
    from consumer_proxy.pull._deliver import build_reply
    from consumer_proxy.pull._read_call import read_call
else:
    from consumer_proxy.pull.deliver import build_reply
    from consumer_proxy.pull.read_call import read_call

__all__ = ["NATIVE", "build_reply", "read_call"]
