"""The byte work of a pull, native where it was built; NATIVE says which. PENSTOCK_PURE=1 forces the twins."""

import os

try:
    if os.environ.get("PENSTOCK_PURE"):
        raise ImportError("twins asked for")
    from consumer_proxy.pull._deliver import build_reply
    from consumer_proxy.pull._read_call import read_call

    NATIVE = True
except ImportError:
    from consumer_proxy.pull.deliver import build_reply
    from consumer_proxy.pull.read_call import read_call

    NATIVE = False

__all__ = ["NATIVE", "build_reply", "read_call"]
