"""Messages of the replicated load, by stream and number: nothing about a message has to be kept to check it later.

A *stream* is one sender: its messages are numbered, and it sends the next call only after the answer to the one before.

    0 … 5    single messages     orders, payments, jobs; two thirds with a key
    6, 7     calls of 20         the same mixed in one call, and a delayed one now and then
    8        delayed messages    reminders
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.e2e.running import Application

ORDERS, PAYMENTS, JOBS, REMINDERS = "orders", "payments", "jobs", "reminders"
TOPICS = (ORDERS, PAYMENTS, JOBS, REMINDERS)
QUEUES = 4
READERS, LARGE, GOLD, WORKERS = "readers", "large", "gold", "workers"
GROUPS = {READERS: (ORDERS, PAYMENTS, REMINDERS), LARGE: (PAYMENTS,), GOLD: (PAYMENTS,), WORKERS: (JOBS,)}
SINGLES, BATCHES, DELAYED = range(6), range(6, 8), 8
STREAMS = 9
BATCH = 20
KEYS = 3
AMOUNTS, LARGE_FROM = 100, 60
ATTEMPTS_MAX = 6
"""Each forgotten acknowledgement is an attempt, too: a sound message must not use up all of them."""
LEASE = ("--invisible-ms", "4000")
"""An acknowledgement that a switch forgets comes again when the lease ends, and the drain waits for it."""
SHARES = {"singles": 0.60, "batches": 0.38, "delayed": 0.02}
"""Of all messages per second."""

_TURNS = (ORDERS, PAYMENTS, ORDERS, ORDERS, JOBS, ORDERS, PAYMENTS, ORDERS, ORDERS, PAYMENTS)
_FILLER = bytes(range(256)) * 3


class Planned(NamedTuple):
    """A message as it is sent. `id`: None for every second one, which the proxy gives one."""

    topic: str
    body: bytes
    key: str | None
    tag: str | None
    properties: dict[str, str] | None
    id: str | None
    delay_ms: int


def planned(stream: int, number: int) -> Planned:
    topic = _topic(stream, number)
    body = b"%d.%d|" % (stream, number) + _FILLER[: number * 31 % 250]
    key = None if number % 3 == 2 else f"{stream}-{number // 3 % KEYS}"
    tag = properties = None
    if topic == PAYMENTS:
        tag = "gold" if number // 7 % 2 else "silver"
        properties = {"amount": str(number * 13 % AMOUNTS)}
    name = None if number % 2 else f"{stream}.{number}"
    delay_ms = 100 + number * 37 % 1900 if topic == REMINDERS else 0
    return Planned(topic, body, key, tag, properties, name, delay_ms)


def _topic(stream: int, number: int) -> str:
    is_delayed = stream == DELAYED or (stream in BATCHES and number % (5 * BATCH) == 5 * BATCH - 1)
    return REMINDERS if is_delayed else _TURNS[number * 7 // 3 % len(_TURNS)]


def origin(body: bytes) -> tuple[int, int] | None:
    """Stream and number of a message by its body; None: no stream sends such a body."""
    head, mark, _ = body[:24].partition(b"|")
    stream, dot, number = head.partition(b".")
    if not (mark and dot and stream.isdigit() and number.isdigit()):
        return None
    found = int(stream), int(number)
    return found if found[0] < STREAMS and planned(*found).body == body else None


def is_wanted(group: str, message: Planned) -> bool:
    """Whether the group has to get it."""
    if message.topic not in GROUPS[group]:
        return False
    if group == LARGE:
        return int(message.properties["amount"]) >= LARGE_FROM
    return group != GOLD or message.tag == "gold"


def is_poison(message: Planned, number: int) -> bool:
    """Whether no worker can do it, so that it ends as a dead letter."""
    return message.topic == JOBS and number % 11 == 4


def is_retried(number: int) -> bool:
    """Whether a group wants it once more after its first delivery."""
    return number % 97 == 5


def define(penstock, name: str = "load") -> Application:
    """Define topics, groups, and an application that may use them.

    No topic but one checks ids, so that every copy of a message would be stored.
    """
    unchecked = ["--queues", str(QUEUES), "--id-window-s", "0"]
    definitions = [
        ("topic", "create", ORDERS, JOBS, REMINDERS, *unchecked),
        ("topic", "create", PAYMENTS, "--queues", str(QUEUES)),
        ("group", "create", READERS, "--retry", "100", *LEASE),
        ("group", "create", LARGE, "--filter", f"amount >= {LARGE_FROM}", *LEASE),
        ("group", "create", GOLD, "--filter", "gold", *LEASE),
        ("group", "create", WORKERS, "--attempts-max", str(ATTEMPTS_MAX), "--retry", "50", *LEASE),
    ]
    with ThreadPoolExecutor(3) as pool:  # a command takes longer to start than to do its work
        made = pool.submit(penstock.application, name, send=["*"], pull=["*"], dead_letters=["*"])
        for done in [pool.submit(penstock.run, *each) for each in definitions]:
            done.result()
    return made.result()
