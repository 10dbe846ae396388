"""Selects the hot path, which is native code only, over native lanes and counts.

Without it `Front` is None and the rare path takes every call.
"""

from typing import Any

from common.twins import use_native
from engine.client.append import NATIVE as NATIVE_LANES
from producer_proxy.send.native import NATIVE as NATIVE_SENDS

Front: Any = None
HotConnection: Any = None
NATIVE = use_native("producer_proxy.hot", "_front", "_hot", requires=NATIVE_LANES and NATIVE_SENDS)
if NATIVE:
    from producer_proxy.hot._front import Front  # type: ignore[no-redef]
    from producer_proxy.hot._hot import HotConnection  # type: ignore[no-redef]

__all__ = ["NATIVE", "Front", "HotConnection"]
