"""Checks that a Redis is fit for messages answered BUFFERED: it must not evict, and must sync each write before it
answers. And that it deletes: a failed snapshot, a read-only replica or a permission may forbid it while reads go on.
"""

from collections.abc import Collection, Iterable
from typing import Any

from redis.exceptions import ResponseError

from producer_proxy.buffer.redis.client import masters
from producer_proxy.buffer.redis.layouts import Layout

ACCEPTABLE = {
    "evicting": "may evict what is buffered",
    "everysec": "may lose about a second of buffered messages in a power cut, or more",
    "unverified": "hides its settings: whether it evicts or syncs is not known",
}
"""Weaknesses that an operator may allow, by name."""


def weaknesses(client: Any) -> dict[str, str]:
    """One sentence per weakness, by the name that allows it. Asks every master. Raises redis.RedisError."""
    found: dict[str, str] = {}
    for master in masters(client):
        try:
            settings = {**master.config_get("maxmemory*"), **master.config_get("append*")}
        except ResponseError as error:
            found["unverified"] = f"CONFIG GET is refused ({error})"
            continue
        if settings.get("maxmemory-policy") != "noeviction":
            found["evicting"] = f"maxmemory-policy is {settings.get('maxmemory-policy')}, not noeviction"
        if settings.get("appendonly") != "yes":
            found["everysec"] = "appendonly is not yes"
        elif settings.get("appendfsync") != "always":
            found["everysec"] = f"appendfsync is {settings.get('appendfsync')}, not always"
    return found


def refusal(found: dict[str, str], accepted: Collection[str]) -> str | None:
    """The weaknesses that are not allowed, as a sentence; None: there are none."""
    wrong = [
        f"{sentence} (allowed only by --buffer-redis-accept {name})"
        for name, sentence in found.items()
        if name not in accepted
    ]
    return "; ".join(wrong) or None


def warning(found: dict[str, str], accepted: Collection[str]) -> str | None:
    """The weaknesses that are allowed, as a sentence; None: there are none."""
    allowed = [f"{ACCEPTABLE[name]}: {sentence}" for name, sentence in found.items() if name in accepted]
    return "; ".join(allowed) or None


def refused_deletion(shards: Iterable[Layout]) -> str | None:
    """The reason why Redis deletes nothing from one of these shards, as a sentence; None: it deletes.

    Raises the errors of a Redis that is away.
    """
    for shard in shards:
        try:
            shard.try_delete()
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):  # a foreign key: its topics alone are refused
                return refuses_deletions(error)
    return None


def refuses_deletions(error: Exception) -> str:
    """The fault of a store whose deletion was answered with this error."""
    return f"Redis refuses to delete: {error}"
