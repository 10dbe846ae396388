"""Selects the native or the reference form of the counts of a topic's sends."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("producer_proxy.send", "_sends_window")
if NATIVE and not TYPE_CHECKING:
    from producer_proxy.send._sends_window import TopicSends
else:
    from producer_proxy.send.sends_window import TopicSends

__all__ = ["NATIVE", "TopicSends"]
