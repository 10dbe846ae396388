"""Selects the native or the reference form of encoding the intents of a batch, and the tap of native lanes, if there are any."""

from typing import TYPE_CHECKING, Any

from common.twins import use_native
from engine.client.append import NATIVE as NATIVE_LANES

NATIVE = use_native("producer_proxy.journal", "_intents")
if NATIVE and not TYPE_CHECKING:
    from producer_proxy.journal._intents import intents_of
else:
    from producer_proxy.journal.intents import intents_of

DualTap: Any = None
encode_produce_of: Any = None
all_stored: Any = None
AreaMap: Any = None
HAS_TAP = use_native("producer_proxy.journal", "_tap", requires=NATIVE_LANES)
if HAS_TAP:
    from producer_proxy.journal._area_map import AreaMap  # type: ignore[no-redef]
    from producer_proxy.journal._tap import DualTap  # type: ignore[no-redef]
    from producer_proxy.journal._tapped_produce import all_stored, encode_produce_of  # type: ignore[no-redef]

__all__ = ["HAS_TAP", "NATIVE", "AreaMap", "DualTap", "all_stored", "encode_produce_of", "intents_of"]
