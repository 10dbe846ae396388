"""The options of `group create` and `group set`, and what they ask for."""

from typing import Any

import click

from common.admin.groups import GroupSettings
from common.config.definitions import ON_FAILURE, ORDERS
from common.filter.expression import read_filter
from common.retry import parse_retry_text
from penstock.commands.moment import parse_moment
from penstock.commands.rates import rate_options

HOUR_MS = 3_600_000


class RetryType(click.ParamType):
    """A back-off as people write it; becomes what is stored."""

    name = "retry"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_retry_text(value) if isinstance(value, str) else value
        except ValueError as rule:
            self.fail(str(rule), param, ctx)


class StartType(click.ParamType):
    """Where a group begins on a new topic; becomes (start, start_at_ms)."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value in ("earliest", "latest"):
            return value, 0
        try:
            return "time", parse_moment(value)
        except ValueError as rule:
            self.fail(f"earliest, latest or {rule}", param, ctx)


def settings_options(command: Any) -> Any:
    for option in (
        *rate_options("Delivered", "pull"),
        click.option(
            "--topic-filter",
            "topic_filters",
            nargs=2,
            multiple=True,
            metavar="TOPIC FILTER",
            help="A filter for one topic, in place of --filter; repeatable. Replaces all of these; an empty FILTER is none.",
        ),
        click.option("--filter", help="Which messages it takes: docs/filters.md. Empty: all."),
        click.option(
            "--on-failure", type=click.Choice(ON_FAILURE), help="After the last attempt, in order.  [new: skip]"
        ),
        click.option("--order", type=click.Choice(ORDERS), help="Whose messages go one after another.  [new: none]"),
        click.option(
            "--dead-letter-retention-hours", type=click.IntRange(0), help="How old dead letters get.  [new: 0, as all]"
        ),
        click.option(
            "--retry",
            type=RetryType(),
            metavar="MS,MS…|NAME=…,…",
            help="Waits after a RETRY: a list, or first_ms, factor, max_ms, jitter.  "
            "[new: first_ms=1000,factor=2,max_ms=60000,jitter=0.2]",
        ),
        click.option("--attempts-max", type=int, help="Deliveries before the dead-letter queue.  [new: 16]"),
        click.option(
            "--start", type=StartType(), metavar="earliest|latest|TIME", help="Where on a new topic.  [new: earliest]"
        ),
        click.option("--invisible-ms", type=int, help="How long a delivery is leased.  [new: 30000]"),
        click.option("--topic", "topics", multiple=True, help="What a pull that names no topic reads; repeatable."),
    ):
        command = option(command)
    return command


def settings_of(given: dict[str, Any]) -> GroupSettings:
    """The settings that a command line's options ask for."""
    hours = given.pop("dead_letter_retention_hours")
    topics = given.pop("topics")
    start, start_at_ms = given.pop("start") or (None, None)
    by_topic = dict(given.pop("topic_filters"))
    for text in (given["filter"], *by_topic.values()):
        if text:
            read_filter(text)  # here for its caret; the definition's check has room for one line
    topic_filters = {topic: text for topic, text in by_topic.items() if text} if by_topic else None
    return GroupSettings(
        topics=topics or None,
        dead_letter_retention_ms=None if hours is None else hours * HOUR_MS,
        topic_filters=topic_filters,
        start=start,
        start_at_ms=start_at_ms,
        **given,
    )
