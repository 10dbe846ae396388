# cython: language_level=3
"""The size of the durability table for native code.

tests/unit/engine/client/test_durability.py compares it with durability.py.
"""

cdef enum:
    LANE_COUNT = 4
