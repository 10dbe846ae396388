"""Requests of commands to the engines of all broker groups."""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from common.address import Address
from common.contract import Code
from common.errors import PenstockError
from engine.client.admin import AdminClient, AdminError
from engine.client.joined import JoinedLink
from engine.link.errors import LinkError
from penstock.terminal.exits import UNAVAILABLE, CommandError, code_for_contract
from penstock.terminal.instance import Instance
from penstock.terminal.suggestions import did_you_mean

NAMES_MAX = 2_000
UNKNOWN_TOPIC = re.compile(r"topic=(\S+): ")
NOT_HERE = (
    Code.UNKNOWN_TOPIC,
    Code.UNKNOWN_GROUP,
)  # a broker group without a queue of the topic may not know it


class EngineAway(PenstockError, ConnectionError):
    """An engine is not reached, or its link broke: a ConnectionError, as it may answer later."""


class CommandLink(AdminClient):
    """A link whose errors name the engine. It raises EngineAway in place of OSError and LinkError."""

    def __init__(self, name: str, address: tuple[str, int], admin_key: bytes, *, timeout_s: float = 5.0) -> None:
        self._name, self._address = name, address
        with self._named():
            super().__init__(address, admin_key, timeout_s=timeout_s)

    def send(self, op: int, payload: bytes) -> None:
        with self._named():
            super().send(op, payload)

    def receive(self) -> tuple[int, bytes]:
        with self._named():
            return super().receive()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (LinkError, OSError) as error:
            raise EngineAway(sentence(self._name, self._address, error)) from error


def sentence(name: str, address: tuple[str, int], error: LinkError | OSError) -> str:
    """What a command says of an engine that is not reached, or whose link broke."""
    at = Address(*address)
    if isinstance(error, LinkError):
        return f"{_who(name)} at {at}: {str(error).removeprefix(f'engine={at}: ')}"
    fault = error.strerror or error
    return f"{_who(name)} at {at}: no answer: {fault}: try again once `penstock status` shows that it runs there"


def _who(name: str) -> str:
    return "engine" if name == "main" else f"engine of {name}"


@contextmanager
def connected(
    instance: Instance, timeout_s: float = 5.0, *, for_reads: bool = False
) -> Iterator[dict[str, AdminClient]]:
    """Links to all engines, by the broker group's name. Within it an engine that is not reached raises EngineAway.

    The errors of engines that leave it are the command's; with UNAVAILABLE, where an engine does not answer.

    Args:
        for_reads: take slaves that serve reads, where there are any.
    """
    key = instance.admin_key()
    with named("main"), ExitStack() as links:
        yield {
            name: links.enter_context(CommandLink(name, address, key, timeout_s=timeout_s))
            for name, address in instance.engines(for_reads=for_reads).items()
        }


@contextmanager
def named(name: str) -> Iterator[None]:
    """Turn an engine's errors into the command's: one line that begins with the broker group."""
    try:
        yield
    except AdminError as error:
        raise CommandError(f"{_who(name)}: {error}", code_for_contract(error.code)) from error
    except EngineAway as error:
        raise CommandError(str(error), UNAVAILABLE) from error
    except LinkError as error:
        raise CommandError(f"{_who(name)}: {error}", UNAVAILABLE) from error


@contextmanager
def joined(instance: Instance, timeout_s: float = 5.0) -> Iterator["AdminClient | JoinedLink"]:
    """All engines as one, for queries of stored messages. Their errors become the command's."""
    with connected(instance, timeout_s, for_reads=True) as engines:
        try:
            yield (
                JoinedLink(engines, instance.placed_topics(engines))
                if len(engines) > 1
                else next(iter(engines.values()))
            )
        except AdminError as error:
            topic = UNKNOWN_TOPIC.match(str(error))
            if error.code != Code.UNKNOWN_TOPIC or topic is None:
                raise
            raise AdminError(error.code, f"{error}{name_there(engines, {'topic': topic[1]})}") from error


def ask_all(instance: Instance, verb: str, **options: Any) -> dict[str, dict[str, Any]]:
    """Answers by broker group.

    A broker group that does not know the topic or consumer group is left out, unless none does.
    """
    answers, unknown = {}, None
    with connected(instance) as engines:
        for name, engine in engines.items():
            try:
                with named(name):
                    answers[name] = engine.ask(verb, **options)
            except CommandError as error:
                cause = error.__cause__
                if not isinstance(cause, AdminError) or cause.code not in NOT_HERE:
                    raise
                unknown = error
        if not answers and unknown is not None:
            raise CommandError(f"{unknown}{name_there(engines, options)}", unknown.exit_code)
    return answers


def name_there(engines: Mapping[str, AdminClient], options: Mapping[str, Any]) -> str:
    """The end of the error of a name that no engine knows: those that they know and that are like it."""
    for option, verb in (("group", "groups"), ("topic", "topics")):
        name = options.get(option)
        for engine in engines.values() if name else ():
            found = engine.ask(verb, prefix=str(name)[:1], limit=NAMES_MAX)[verb]
            names = [each if isinstance(each, str) else each["name"] for each in found]
            if str(name) not in names:
                hint = did_you_mean(str(name), names)
                return f": {hint}" if hint else ""
    return ""
