"""Limits: token buckets, quota slices of a cluster-wide limit, the bound of a queue.

`NATIVE` says which form is active.
"""

from common.limits.native import NATIVE, Meter, QueueLimit

__all__ = ["NATIVE", "Meter", "QueueLimit"]
