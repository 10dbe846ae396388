"""Selects the native form of the link's connections, or its reference."""

from typing import TYPE_CHECKING

from common.twins import use_native
from engine.server import serve as reference

# The native form appends through the native appender and no other.
NATIVE = use_native("engine.server", "_serve", requires=use_native("engine.log.write", "_append"))
if NATIVE and not TYPE_CHECKING:
    from engine.server import _serve as form
else:
    form = reference

__all__ = ["NATIVE", "form", "reference"]
