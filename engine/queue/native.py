"""Which form of delivery's hot parts is in use: compiled modules, or their twins in pure Python.

`PENSTOCK_PURE=1` forces the twins. The parts of a form belong together, so that tests can run both in one process.
"""

import os
from typing import NamedTuple

from engine.queue import acknowledge, handout, place, receipt, subscription


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
        from engine.queue._acknowledge import Acknowledgements
        from engine.queue._handout import HandOut
        from engine.queue._place import Place
        from engine.queue._receipt import Receipts
        from engine.queue._subscription import Hungry, Subscription

        FORM = Form("native", Place, HandOut, Receipts, Subscription, Hungry, Acknowledgements)
    except ImportError:
        pass
NATIVE = FORM is not TWIN
