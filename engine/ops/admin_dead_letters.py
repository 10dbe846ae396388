"""ADMIN's verbs for dead letters: dead_letters, redrive, purge.

Each does bounded work and answers where to continue.
"""

from typing import Any

from common.dead_letters import dead_letter_topic, is_dead_letter_topic
from engine.delivery.delivery import Delivery
from engine.delivery.redrive import DeadLetter, DeadLetterPage, DeadLetterSelection, DeadLetterStore, ScatteredError
from engine.link.codes import OVERLOADED, UNKNOWN_TOPIC
from engine.log import Log
from engine.ops.checks import checked_name, is_whole, shown
from engine.ops.errors import RequestError

UNKNOWN_GROUP = 103
OFFSET_MAX = (1 << 63) - 1
OFFSETS_MAX = 1_000
_TEXTS = ("cause", "reason", "topic")
_TIMES = ("since_ms", "until_ms")


class DeadLetterVerbs:
    """Requests about one engine's dead letters."""

    def __init__(self, store: Log, delivery: Delivery) -> None:
        self._store, self._delivery = store, delivery
        self._letters = DeadLetterStore(store, delivery)

    @property
    def verbs(self) -> dict[str, Any]:
        """Name -> function(request, now_ms)."""
        return {"dead_letters": self._look, "redrive": self._redrive, "purge": self._purge}

    def _look(self, request: dict, now_ms: int) -> dict:
        scan = self._letters.look(self._group(request), _choice(request), _after(request))
        return {**_progress(scan), "letters": [row(letter) for letter in scan.letters]}

    def _purge(self, request: dict, now_ms: int) -> dict:
        with _AnswersScattered():
            return _progress(self._letters.purge(self._group(request), _choice(request), _after(request)))

    def _redrive(self, request: dict, now_ms: int) -> dict:
        group, to = self._group(request), None
        if request.get("to") is not None:
            name = checked_name(request["to"], "to")
            to = self._store.topic(name)
            if is_dead_letter_topic(name):
                raise RequestError(f"to: {shown(name)} is a dead-letter topic: use another topic")
            if to is None:
                raise RequestError(
                    f"to: topic {shown(name)}: the engine has no such topic: send to it or pull from it once",
                    UNKNOWN_TOPIC,
                )
        with _AnswersScattered():
            scan = self._letters.redrive(group, _choice(request), to, _after(request), now_ms)
        return {**_progress(scan), "unsettled": self._letters.unsettled.get(group, 0)}

    def _group(self, request: dict) -> str:
        name = checked_name(request.get("group"), "group")
        if name not in self._delivery.groups and self._store.topic(dead_letter_topic(name)) is None:
            raise RequestError(
                f"group {shown(name)}: unknown group: it has no dead letters and has not pulled since the engine started",
                UNKNOWN_GROUP,
            )
        return name


class _AnswersScattered:
    """Turns ScatteredError into an answer."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ScatteredError):
            raise RequestError(
                "the filter skips too many dead letters: redrive or purge those first", OVERLOADED
            ) from None


def row(letter: DeadLetter) -> dict[str, Any]:
    """One dead letter as JSON; unknown fields are absent."""
    told = dict(letter.record.origin)
    told["message_offset"] = told.pop("offset", "")
    numbers = {name: int(told.pop(name)) for name in tuple(told) if _is_number(name, told[name])}
    told.pop("group", None)
    key = letter.record.key.decode(errors="replace")
    return {"offset": letter.offset, "died_ms": letter.stored_at_ms, **told, **numbers, **({"key": key} if key else {})}


def _is_number(name: str, value: str) -> bool:
    return name in ("attempts", "first_ms", "last_ms", "queue", "message_offset") and value.isdecimal()


def _progress(scan: DeadLetterPage) -> dict[str, int]:
    return {"count": len(scan.letters), "next": scan.next_offset, "end": scan.end}


def _choice(request: dict) -> DeadLetterSelection:
    texts = {name: request.get(name) for name in _TEXTS}
    times = {name: request.get(name) for name in _TIMES}
    if any(value is not None and not isinstance(value, str) for value in texts.values()):
        raise RequestError("cause, reason, topic: use text")
    if any(value is not None and type(value) is not int for value in times.values()):
        raise RequestError("since_ms, until_ms: use Unix time in milliseconds")
    before = request.get("before")
    if before is not None and not is_whole(before, 0, OFFSET_MAX):
        raise RequestError(f"before: {shown(before)}: use an offset")
    return DeadLetterSelection(**texts, **times, offsets=_offsets(request.get("offsets")), before=before)


def _offsets(value: object) -> frozenset[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > OFFSETS_MAX or not all(is_whole(at, 0, OFFSET_MAX) for at in value):
        raise RequestError(f"offsets: use a list of at most {OFFSETS_MAX:,} offsets of the dead-letter topic")
    return frozenset(value)


def _after(request: dict) -> int:
    value = request.get("after", 0)
    if not is_whole(value, 0, OFFSET_MAX):
        raise RequestError(f"after: {shown(value)}: use an offset")
    return value
