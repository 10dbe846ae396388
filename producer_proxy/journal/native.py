"""Selects the native or the reference form of encoding the intents of a batch."""

from typing import TYPE_CHECKING

from common.twins import use_native

NATIVE = use_native("producer_proxy.journal", "_intents")
if NATIVE and not TYPE_CHECKING:
    from producer_proxy.journal._intents import intents_of
else:
    from producer_proxy.journal.intents import intents_of

__all__ = ["NATIVE", "intents_of"]
