"""Which form of delivery's hot parts is in use: compiled modules, or their twins in pure Python.

`PENSTOCK_PURE=1` forces the twins. The parts of a form belong together, so that tests can run both in one process.
"""

import os
from typing import NamedTuple

from engine.delivery import acknowledge, receipt, subscription
from engine.delivery import dispatch as handout
from engine.delivery import queue_cursor as place


class Form(NamedTuple):
    """The classes of one form."""

    name: str
    Place: type
    HandOut: type
    Receipts: type
    Subscription: type
    Hungry: type
    Acknowledgements: type


TWIN = Form(
    "twin",
    place.Place,
    handout.HandOut,
    receipt.Receipts,
    subscription.Subscription,
    subscription.Hungry,
    acknowledge.Acknowledgements,
)
FORM = TWIN
if not os.environ.get("PENSTOCK_PURE"):
    try:
        from engine.delivery._acknowledge import Acknowledgements
        from engine.delivery._dispatch import HandOut
        from engine.delivery._queue_cursor import Place
        from engine.delivery._receipt import Receipts
        from engine.delivery._subscription import Hungry, Subscription

        FORM = Form("native", Place, HandOut, Receipts, Subscription, Hungry, Acknowledgements)
    except ImportError:
        pass
NATIVE = FORM is not TWIN
