"""Selects between native modules and their references in pure Python: the one place that decides.

`x.py` is the reference. `_x.pyx`, in the same folder, is the native form with the same names and results. A package
that has both exports the selected names from its `native.py`. `PENSTOCK_PURE=1` forces the references everywhere.
"""

import os
from importlib import import_module


def use_native(package: str, *modules: str, requires: bool = True) -> bool:
    """Whether the native forms of a package are used: all of `modules` import, or none is used.

    Args:
        package: its dotted name.
        modules: names of native modules in it, with their underscore.
        requires: whether the native packages that these build on are in use; False selects the references.
    """
    if os.environ.get("PENSTOCK_PURE") or not requires:
        return False
    try:
        for module in modules:
            import_module(f"{package}.{module}")
    except ImportError:
        return False
    return True
