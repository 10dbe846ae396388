"""Selects the hot path: native code only, over native lanes. `Front` is None without it; then the rare path takes every call."""

from typing import Any

from common.twins import use_native
from engine.client.append import NATIVE as NATIVE_LANES

Front: Any = None
NATIVE = use_native("producer_proxy.hot", "_hot", requires=NATIVE_LANES)
if NATIVE:
    from producer_proxy.hot._hot import Front  # type: ignore[no-redef]

__all__ = ["NATIVE", "Front"]
