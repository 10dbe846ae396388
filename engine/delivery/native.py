"""Selects the form of delivery's hot parts: native modules, or their references in pure Python.

The classes of a form belong together: those of the native form use each other's C fields. `REFERENCE` is always there,
so that tests run both forms in one process.
"""

from typing import NamedTuple

from common.twins import use_native
from engine.delivery import (
    acknowledge,
    dispatch,
    in_flight,
    key_order,
    pull,
    queue_cursor,
    receipt,
    reply_window,
    subscription,
)
from engine.log.write.native import NATIVE as LOG_IS_NATIVE


class DeliveryForm(NamedTuple):
    """The classes of one form."""

    name: str
    QueueCursor: type
    InFlightRanges: type
    KeyOrder: type
    Dispatcher: type
    Receipts: type
    Subscription: type
    WakeList: type
    Acknowledgements: type
    Pull: type
    ReplyWindow: type


REFERENCE = DeliveryForm(
    "reference",
    queue_cursor.QueueCursor,
    in_flight.InFlightRanges,
    key_order.KeyOrder,
    dispatch.Dispatcher,
    receipt.Receipts,
    subscription.Subscription,
    subscription.WakeList,
    acknowledge.Acknowledgements,
    pull.Pull,
    reply_window.ReplyWindow,
)
FORM = REFERENCE
NATIVE = use_native(
    "engine.delivery",
    "_acknowledge",
    "_dispatch",
    "_in_flight",
    "_key_order",
    "_pull",
    "_queue_cursor",
    "_receipt",
    "_reply_window",
    "_subscription",
    requires=LOG_IS_NATIVE,
)
if NATIVE:
    from engine.delivery._acknowledge import Acknowledgements
    from engine.delivery._dispatch import Dispatcher
    from engine.delivery._in_flight import InFlightRanges
    from engine.delivery._key_order import KeyOrder
    from engine.delivery._pull import Pull
    from engine.delivery._queue_cursor import QueueCursor
    from engine.delivery._receipt import Receipts
    from engine.delivery._reply_window import ReplyWindow
    from engine.delivery._subscription import Subscription, WakeList

    FORM = DeliveryForm(
        "native",
        QueueCursor,
        InFlightRanges,
        KeyOrder,
        Dispatcher,
        Receipts,
        Subscription,
        WakeList,
        Acknowledgements,
        Pull,
        ReplyWindow,
    )
