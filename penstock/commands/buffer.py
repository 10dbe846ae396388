"""`penstock buffer`: show, export or drain a fallback buffer whose proxy has stopped."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click

from common.clock import SystemClock
from common.contract import Message, decode_struct
from common.ids import show_id
from common.secret_file import secret_faults
from common.utc import utc_ms
from penstock.terminal import progress
from penstock.terminal.directories import StoreDirectory
from penstock.terminal.exits import CONFLICT, FAILED, UNAVAILABLE, USAGE, CommandError, CommandGroup
from penstock.terminal.instance import Instance, instance_options
from penstock.terminal.output import output_option, show_one, show_rows
from producer_proxy.buffer.disk import survey
from producer_proxy.buffer.disk.survey import BufferDamage, Waiting
from producer_proxy.buffer.errors import BufferError_, BufferInUse
from producer_proxy.buffer.pace import PER_S
from producer_proxy.buffer.redrive import BufferedDeadLetters, DeadFile, DeadRedisList

COLUMNS = ("accepted_at", "topic", "key", "id", "body_bytes")

DIRECTORY = StoreDirectory("buffer", survey.is_store)

directory_argument = click.argument("directory", metavar="DIR", type=DIRECTORY)
topic_option = click.option("--topic", metavar="TOPIC", help="Show only this topic.")
password_option = click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read the password of the Redis from FILE.",
)
per_s_option = click.option(
    "--per-s",
    type=click.IntRange(1),
    default=PER_S,
    metavar="N",
    help=f"Send at most N entries per second (default {PER_S:,}).",
)
timeout_option = click.option(
    "--timeout-s",
    type=click.FloatRange(min=0.1),
    default=30.0,
    metavar="SECONDS",
    help="Stop after this many seconds without progress (default 30).",
)
dead_option = click.option("--dead", is_flag=True, help="Show the dead-letter list, with the reason of each entry.")


@click.group("buffer", cls=CommandGroup)
def command() -> None:
    """Show, export or drain the disk buffer in DIR (a producer proxy's --buffer).

    Reading is safe while the proxy runs. A proxy that starts on DIR drains it by itself. A proxy with a Redis buffer
    also drains the entries that stopped proxies left there.

    \b
    penstock buffer status .penstock/buffer/producer_proxy
    penstock buffer status redis://10.0.0.5:6379
    penstock buffer inspect .penstock/buffer/producer_proxy --topic orders --limit 20
    penstock buffer export .penstock/buffer/producer_proxy --dead > dead.jsonl
    penstock buffer drain /mnt/failed-host/buffer --data .penstock
    penstock buffer redrive .penstock/buffer/producer_proxy --dead --topic orders
    """


@command.command()
@click.argument("place", metavar="DIR|URL")
@password_option
@output_option
def status(place: str, password_file: Path | None, output: str) -> None:
    """Show number and age of the waiting entries, the dead-letter list, and damage.

    Give a directory, or the URL of a Redis as in --buffer-redis of the proxies. Exit code 1 when there is damage, or
    when the Redis may lose entries.
    """
    if "://" in place:
        show, well = of_redis(place, password_file)
    else:
        show, well = of_directory(DIRECTORY.convert(place, None, None))
    show_one(show, output)
    raise SystemExit(0 if well else FAILED)


def of_redis(url: str, password_file: Path | None) -> tuple[dict[str, Any], bool]:
    """The rows to show, and whether there is no problem."""
    with redis_at(url, password_file) as (client, layout):
        from producer_proxy.buffer.redis.survey import survey as survey_redis

        found = survey_redis(client, layout)
    show = {
        "entries": sum(found.entries.values()),
        "oldest_s": age_s(found.oldest_at_ms),
        "slots": [f"{slot} ({count})" for slot, count in found.entries.items()],
        "dead": found.dead,
        "weak": found.weaknesses,
        "damage": found.faults,
    }
    return show, not found.weaknesses and not found.faults


@contextmanager
def redis_at(url: str, password_file: Path | None) -> Iterator[tuple[Any, str]]:
    """A client of the Redis, and the layout of the buffer there. Errors in the block become the command's."""
    try:
        from producer_proxy.buffer.redis.address import parse_address
        from producer_proxy.buffer.redis.client import AWAY, connect  # needs redis-py, an extra
    except ImportError as error:
        raise CommandError(f"redis-py is missing: pip install 'penstock[redis]' ({error})", FAILED) from error
    try:
        address = parse_address(url)
        if faults := secret_faults({"--password-file": password_file}):
            raise ValueError("; ".join(faults))
        yield connect(address, password_file), address.layout
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
    except AWAY as error:
        raise CommandError(f"{url}: {error}", UNAVAILABLE) from error


def age_s(at_ms: int | None) -> float | None:
    return None if at_ms is None else round(time.time() - at_ms / 1000, 1)


def of_directory(directory: Path) -> tuple[dict[str, Any], bool]:
    """The rows to show, and whether there is no problem."""
    topics: dict[str, int] = {}
    damage: list[BufferDamage] = []
    size = torn = 0
    oldest_ms: int | None = None
    for found in read(directory, False):
        if isinstance(found, BufferDamage):
            torn += found.size_bytes if found.torn else 0
            damage += [] if found.torn else [found]
            continue
        topics[found.entry.topic] = topics.get(found.entry.topic, 0) + 1
        size += found.entry.size_bytes
        oldest_ms = found.entry.accepted_at_ms if oldest_ms is None else min(oldest_ms, found.entry.accepted_at_ms)
    show = {
        "in_use": survey.is_held(directory),
        "entries": sum(topics.values()),
        "bytes": size,
        "oldest_s": age_s(oldest_ms),
        "topics": len(topics),
        "largest_topics": [f"{name} ({count})" for name, count in sorted(topics.items(), key=lambda it: -it[1])[:5]],
        "dead": sum(1 for _ in read(directory, True)),
        "torn_tail_bytes": torn,
        "damage": [f"{each.file} at {each.offset}: {each.size_bytes} bytes" for each in damage]
        + [f"{path.name}: set aside by a proxy" for path in sorted(directory.glob("*.damaged"))],
    }
    return show, not damage


@command.command()
@directory_argument
@topic_option
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=100,
    metavar="N",
    help="Show at most N entries, oldest first (default 100).",
)
@dead_option
@output_option
def inspect(directory: Path, topic: str | None, limit: int, dead: bool, output: str) -> None:
    """List waiting entries, oldest first, without their bodies."""
    found = islice(entries(directory, topic, dead), limit)
    show_rows([row(each) for each in found], (*COLUMNS, "reason") if dead else COLUMNS, output)


@command.command()
@directory_argument
@topic_option
@dead_option
def export(directory: Path, topic: str | None, dead: bool) -> None:
    """Write entries as JSON lines: the fields of the message, and `message`, its stored bytes in base64."""
    for each in entries(directory, topic, dead):
        message = decode_struct(Message, each.entry.message)
        value = {**row(each), "tag": message.tag, "properties": message.properties, "message": text(each.entry.message)}
        click.echo(json.dumps(value))


@command.command()
@directory_argument
@per_s_option
@timeout_option
@instance_options("engine", keys=("cluster_key", "admin_key"))
def drain(instance: Instance, directory: Path, per_s: int, timeout_s: float) -> None:
    """Send every entry to the engine, and delete each after the engine has it on disk.

    Exit code 4 while a proxy uses DIR, 5 when the engine does not accept every entry: the others stay.
    """
    from producer_proxy.buffer.empty import empty  # the engine's client, which the other verbs do not need

    places = list(instance.engines().values())
    engine = places[0] if len(places) == 1 else None
    try:
        with progress.shown():
            drained, buried = empty(
                directory, engine, instance.cluster_key(), instance.config(), per_s, timeout_s,
                lambda left: progress.say(f"{left:,} entries left"),
            )  # fmt: skip
    except BufferInUse as error:
        raise CommandError(f"{error}: it drains by itself", CONFLICT) from error
    except (BufferError_, OSError) as error:
        raise CommandError(str(error), UNAVAILABLE) from error
    click.echo(f"{drained} entries sent to the engine, {buried} moved to the dead-letter list")


@command.command()
@click.argument("place", metavar="DIR|URL")
@click.option("--dead", is_flag=True, required=True, help="Send the dead-letter list.")
@topic_option
@password_option
@per_s_option
@timeout_option
@instance_options("engine", keys=("cluster_key", "admin_key"))
def redrive(
    instance: Instance, place: str, dead: bool, topic: str | None, password_file: Path | None, per_s: int, timeout_s: float
) -> None:  # fmt: skip
    """Send the dead-letter list to the engine again, and remove each entry after the engine has it on disk.

    The proxy of DIR may run. Entries keep their ids; those that the engine refuses again stay on the list. Exit code 5
    when the engine does not answer for every entry, a topic has no definition, or the list cannot be written: the
    others stay.
    """
    if "://" in place:
        with redis_at(place, password_file) as (client, _):
            from producer_proxy.buffer.redis.slots import PREFIX, dead_key

            redriven(instance, DeadRedisList(client, dead_key(PREFIX), topic, SystemClock().now_ms), per_s, timeout_s)
    else:
        directory = DIRECTORY.convert(place, None, None)
        redriven(instance, DeadFile(directory, topic, SystemClock().now_ms), per_s, timeout_s)


def redriven(instance: Instance, store: BufferedDeadLetters, per_s: int, timeout_s: float) -> None:
    """Send these entries and print the outcome."""
    from producer_proxy.buffer.empty import drain_all  # the engine's client, which the other verbs do not need

    places = list(instance.engines().values())
    engine = places[0] if len(places) == 1 else None
    try:
        with progress.shown():
            sent = drain_all(
                store, engine, instance.cluster_key(), instance.config(), per_s, timeout_s,
                lambda left: progress.say(f"{left:,} entries left"),
            )  # fmt: skip
    except (BufferError_, OSError) as error:
        raise CommandError(f"{error}{_left_on(store)}", UNAVAILABLE) from error
    if store.undeleted:
        raise CommandError(f"{sent} entries sent to the engine{_left_on(store)}", UNAVAILABLE)
    click.echo(f"{sent} entries sent to the engine, {store.refused} refused again: they stay on the list")


def _left_on(store: BufferedDeadLetters) -> str:
    """A sentence about entries that the engine has and the list did not let go; empty: there are none."""
    if not store.undeleted:
        return ""
    return (
        f"; {store.undeleted} that the engine has are still on the list, and would be sent again by a further redrive: "
        f"it cannot be written: {store.fault_of_list}"
    )


def read(directory: Path, dead: bool) -> Iterator[Waiting | BufferDamage]:
    try:
        yield from survey.buried(directory) if dead else survey.survey(directory)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", FAILED) from error


def entries(directory: Path, topic: str | None, dead: bool) -> Iterator[Waiting]:
    for found in read(directory, dead):
        if isinstance(found, Waiting) and topic in (None, found.entry.topic):
            yield found


def row(found: Waiting) -> dict[str, Any]:
    entry = found.entry
    message = decode_struct(Message, entry.message)
    value = {
        "accepted_at": utc_ms(entry.accepted_at_ms),
        "topic": entry.topic,
        "key": None if entry.key is None else entry.key.decode("utf-8", "replace"),
        "id": message.id if entry.assigned_id is None else show_id(entry.assigned_id),
        "body_bytes": len(message.body or b""),
    }
    return value if found.reason is None else {**value, "reason": found.reason}


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()
