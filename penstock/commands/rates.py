"""--rate-messages and --rate-bytes: the limits that topics, applications, groups and proxies have in common."""

from collections.abc import Callable

import click

from common.config.definitions import RATE_BYTES_MAX, RATE_MESSAGES_MAX


def rate_options(done: str, call: str, by: str = "all proxies together") -> tuple[Callable, Callable]:
    """Two options, whose help says what is limited: what is `done` in a `call`, and by whom."""
    text = f"{done} a second by {by}, 0: no limit.  [new: 0]"
    return (
        click.option(
            "--rate-bytes", type=click.IntRange(0, RATE_BYTES_MAX), help=f"Bytes of messages ({call}). {text}"
        ),
        click.option("--rate-messages", type=click.IntRange(0, RATE_MESSAGES_MAX), help=f"Messages ({call}). {text}"),
    )
