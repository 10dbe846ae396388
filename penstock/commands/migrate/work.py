"""Shared by the commands of `penstock migrate`: a plan's world from an instance, and the run of a course."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from common.admin import kafka_clusters
from common.admin.administrator import Administrator
from common.clock import SystemClock
from common.config.definitions import KafkaClusterDefinition
from common.config.placed_topics import stored_placed_topics
from common.kafka.base import ClusterAdmin, KafkaProducer, PartitionReader, ProducerOptions, ReaderOptions
from common.kafka.errors import KafkaFault
from common.kafka.group_admin import GroupAdmin
from kafka_bridge.connecting import FollowedConnection, connection_of, driver_of
from migration.deployment import Deployment
from migration.describe import groups_back, rows
from migration.entries import PlanEntry, PlanStore
from migration.facts import IN_ENGINE, Facts, TopicFacts
from migration.plan import MigrationPlan
from migration.positions import EnginePositions
from migration.run import CourseRun
from migration.sub_steps.registry import GATES
from migration.tails import CopyTails
from penstock.terminal import engines
from penstock.terminal.exits import UNAVAILABLE, Command, CommandError
from penstock.terminal.instance import Instance, administration, instance_options
from penstock.terminal.output import output_option, show_one, show_rows

READ_WAIT_S = 0.01
DRY_RUN_COLUMNS = ("sub_step", "does", "takes", "undo")


class OpenedKafka:
    """The administration of a cluster, opened at the first call; `close` it."""

    def __init__(self, admin: Administrator, cluster: str) -> None:
        self._admin, self._cluster = admin, cluster
        self._client: ClusterAdmin | None = None
        self._followed: FollowedConnection | None = None

    def definition(self) -> KafkaClusterDefinition:
        """Raises EntryNotFound."""
        return kafka_clusters.show(self._admin, self._cluster)[0]

    def reader(self) -> PartitionReader:
        """A reader of committed records; its owner closes it.

        It reads up to known ends, so a broker need not hold a request that finds nothing: the next topic would wait for it.
        """
        definition = self.definition()
        return driver_of(definition).reader(connection_of(definition), ReaderOptions(wait_s=READ_WAIT_S))

    def groups(self) -> GroupAdmin:
        """A client that asks for many groups; its owner closes it."""
        definition = self.definition()
        return driver_of(definition).group_admin(connection_of(definition))

    def producer(self) -> KafkaProducer:
        """A producer without a transactional id; its owner closes it."""
        definition = self.definition()
        return driver_of(definition).producer(connection_of(definition), ProducerOptions())

    def __call__(self) -> ClusterAdmin:
        """The client; another one once the files of the cluster have changed."""
        if self._followed is not None and self._followed.is_outdated():
            self.close()
        if self._client is None:
            definition = self.definition()
            self._followed = FollowedConnection(definition)
            self._client = driver_of(definition).admin(self._followed.opened)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@contextmanager
def opened_kafka(admin: Administrator, cluster: str) -> Iterator[OpenedKafka]:
    """Errors of the cluster become the command's."""
    kafka = OpenedKafka(admin, cluster)
    try:
        yield kafka
    except KafkaFault as fault:
        raise CommandError(str(fault), UNAVAILABLE) from fault
    finally:
        kafka.close()


@contextmanager
def deployment_of(
    instance: Instance, admin: Administrator, plan: MigrationPlan, progress: Callable[[str], object]
) -> Iterator[Deployment]:
    """The world of a plan. Errors of Kafka and of engines become the command's."""
    with (
        opened_kafka(admin, plan.cluster) as kafka, engines.connected(instance) as links,
        closing(CopyTails(kafka.reader)) as tails,
    ):  # fmt: skip
        engine = EnginePositions(links, stored_placed_topics(admin.store))
        yield Deployment(
            admin, plan, kafka, engine, progress, tails, open_reader=kafka.reader, open_groups=kafka.groups
        )  # fmt: skip


def perform(instance: Instance, name: str, command: str, accepted: Sequence[str], dry_run: bool, output: str) -> None:
    """Run a command on a plan to the end of its course, and show where the plan is then.

    Args:
        command: empty: go on with the one that is at work.
    """
    with administration(instance) as admin:
        plans = PlanStore(admin.store, admin.clock, admin.who)
        if dry_run:
            entry = plans.read(name)
            show_rows(rows(entry.plan, command or entry.state.course), DRY_RUN_COLUMNS, output)
            return
        with plans.at_work(name) as entry:
            entry = course_of(instance, admin, plans, entry, command, accepted)
    show_one({"plan": name, "digest": entry.plan.digest, "step": str(entry.state.step)}, output)


def course_of(
    instance: Instance, admin: Administrator, plans: PlanStore, entry: PlanEntry, command: str,
    accepted: Sequence[str],
) -> PlanEntry:  # fmt: skip
    """Run a course of a plan whose operator this process is; see `perform`."""
    with deployment_of(instance, admin, entry.plan, say) as deployment:
        run = CourseRun(deployment, plans, entry, admin.clock, frozenset(accepted), time.sleep, say)
        if not command and not entry.state.course:
            raise CommandError(f"plan {entry.plan.name}: no command is at work: it is {entry.state.step}", 4)
        ended = run.run(command) if command else run.resume()
        is_back = "rollback" in (command, entry.state.course)
        if is_back and (groups := groups_back(entry.plan, deployment.facts(with_positions=False))):
            say(f"groups: {groups}")
        return ended


def say(sentence: str) -> None:
    click.echo(f"{datetime.now(UTC).strftime('%H:%M:%S')} {sentence}", err=True)


def course_command(command: str, help_text: str, *, gates: bool = False, dry_run: bool = True) -> click.Command:
    """A command that performs a course; `--accept` where it has gates."""

    @click.command(cls=Command, name=command, help=help_text)
    @click.argument("plan")
    @output_option
    @instance_options("engine")
    def made(instance: Instance, plan: str, output: str, **options: Any) -> None:
        wanted = "" if command == "resume" else command
        perform(instance, plan, wanted, options.get("accepted", ()), options.get("dry_run", False), output)

    if gates:
        accept = click.option(
            "--accept", "accepted", multiple=True, type=click.Choice(GATES),
            help="Go on although this gate is red; repeatable. The plan's history has your name.",
        )  # fmt: skip
        made = accept(made)
    if dry_run:
        made = click.option("--dry-run", is_flag=True, help="Show what each sub-step will do, and do nothing.")(made)
    return made


def ago(at_ms: int) -> str:
    """Seconds since then, in words."""
    seconds = max(0, SystemClock().now_ms() - at_ms) // 1000
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def total_behind(facts: Facts) -> int | None:
    """Records that the copies into the engine lack, over all topics that are copied; None: unknown, or none is."""
    found = [behind_in(topic) for topic in facts.topics.values() if is_copied_in(topic)]
    return None if not found or None in found else sum(behind or 0 for behind in found)


def is_copied_in(topic: TopicFacts) -> bool:
    """Whether what Kafka has is to come into the engine. Since the cut Kafka has copies of the engine's own messages."""
    return not topic.secondary and topic.home != IN_ENGINE


def behind_in(topic: TopicFacts) -> int | None:
    """Records of Kafka that the engine is to get; None: unknown, or it is to get none."""
    return topic.behind_in if is_copied_in(topic) else None
