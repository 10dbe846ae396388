"""Both forms of the log in one process: the package imported once with its native parts and once with their twins."""

import importlib
import os
import sys
from functools import cache
from types import SimpleNamespace

MODULES = (
    "log", "format", "view", "memory", "segment.index_file", "segment.segment", "segment.recovery_scan", "upkeep.recovery", "write.sealer",
    "write.apply", "lookup_index.maker", "lookup_index.lookup_file", "lookup_index.partial", "lookup_index.search",
)  # fmt: skip


ROOMS = ("segment", "write", "lookup_index")
"""Those with native forms; what they select is `native` here."""


@cache
def load(form: str) -> SimpleNamespace:
    """The package's modules as attributes, for form "native" or "twin"."""
    ours = [name for name in sys.modules if name.startswith("engine.log") and "._" not in name]
    saved = {name: sys.modules.pop(name) for name in ours}
    before = os.environ.pop("PENSTOCK_PURE", None)
    if form == "twin":
        os.environ["PENSTOCK_PURE"] = "1"
    try:
        loaded = {name.rpartition(".")[2]: importlib.import_module(f"engine.log.{name}") for name in MODULES}
        selected = [vars(importlib.import_module(f"engine.log.{room}.native")) for room in ROOMS]
        is_native = all(names["NATIVE"] for names in selected)
        loaded["native"] = SimpleNamespace(
            **{k: v for names in selected for k, v in names.items()} | {"NATIVE": is_native}
        )
    finally:
        os.environ.pop("PENSTOCK_PURE", None)
        if before is not None:
            os.environ["PENSTOCK_PURE"] = before
        for name in [name for name in sys.modules if name.startswith("engine.log") and "._" not in name]:
            del sys.modules[name]
        sys.modules.update(saved)
    return SimpleNamespace(name=form, **loaded)


def forms() -> list[str]:
    """The forms that this installation has."""
    return ["native", "twin"] if load("native").native.NATIVE else ["twin"]
