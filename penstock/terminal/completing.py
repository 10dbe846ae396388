"""Completion of names in a shell: of contexts, topics, groups and applications.

It takes a bounded time, and completes nothing where the configuration is away.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from common.config import open_store
from penstock.terminal.contexts import choose_place, load
from penstock.up.files import read_running

ANSWER_S_MAX = 1.0
NAMES_MAX = 200

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def contexts(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Names of the user's contexts."""
    return _bounded(lambda: [name for name in sorted(load().contexts) if name.startswith(begun)])


def names_of(*kinds: str) -> Completer:
    """A completer of the names that the configuration defines, of these kinds."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        return _bounded(lambda: _defined(context.params, kinds, begun))

    return complete


topics, all_topics = names_of("topic"), names_of("topic", "family")
groups, applications = names_of("group"), names_of("application")


def proxies(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Addresses of proxies in contact with the configuration."""

    url = _url(context.params)
    if url is None:
        return []

    def find() -> list[str]:
        with closing(open_store(url)) as store:
            served = [name.partition("@")[2].partition("/")[0] for name in store.applied() if "_proxy@" in name]
        return [address for address in sorted(served) if address.startswith(begun)]

    return _bounded(find)


def _defined(options: dict[str, Any], kinds: Iterable[str], begun: str) -> list[str]:
    url = _url(options)
    if url is None:
        return []
    with closing(open_store(url)) as store:
        return sorted({name for kind in kinds for name in store.names(kind, begun, limit=NAMES_MAX)})[:NAMES_MAX]


def _url(options: dict[str, Any]) -> str | None:
    """The configuration store that the command would use; None: there is none."""
    place = choose_place(_path(options.get("data")), options.get("config"), options.get("context"), os.environ)
    url = place.config or (read_running(place.data) or {}).get("config")
    if url is None and (place.data / "config").is_dir():
        url = (place.data / "config").absolute().as_uri()
    return url


def _path(value: Any) -> Path | None:
    return None if value is None else Path(value)


def _bounded(find: Callable[[], list[str]]) -> list[str]:
    """What `find` gives within ANSWER_S_MAX; nothing when it takes longer or fails."""
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(find())
        except Exception:  # a shell that completes shows no error
            found.clear()

    logging.disable(logging.CRITICAL)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_S_MAX)
    if thread.is_alive():
        return []  # it goes on in silence until this process ends, which is at once
    logging.disable(logging.NOTSET)
    return found
