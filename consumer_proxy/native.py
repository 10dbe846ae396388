"""The byte work of a pull, native where it was built; NATIVE says which. PENSTOCK_PURE=1 forces the twins."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from consumer_proxy._call import read_call
    from consumer_proxy._deliver import build_reply

    NATIVE = True
except ImportError:
    from consumer_proxy.call_pure import read_call
    from consumer_proxy.deliver_pure import build_reply

    NATIVE = False

__all__ = ["NATIVE", "build_reply", "read_call"]
