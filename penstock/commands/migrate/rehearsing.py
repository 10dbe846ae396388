"""A rehearsal from its parts: copies, a Penstock, load, the walk through the commands, the verdict, the removal."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from common.admin.administrator import Administrator
from common.config.definitions import TopicDefinition
from common.config.errors import InvalidDefinition
from common.config.placed_topics import stored_placed_topics
from common.errors import PenstockError
from common.kafka.base import GroupListener, GroupOptions, GroupReader
from engine.client.admin import AdminError
from engine.link.errors import LinkError
from kafka_bridge.connecting import connection_of, driver_of
from kafka_bridge.shared_read.read_ahead import FETCH_RECORDS_MAX
from migration.entries import PlanEntry, PlanStore
from migration.facts import IN_KAFKA, Facts
from migration.inventory import LONE_REPLICA, find_groups, find_topics
from migration.message_sizes import MESSAGE_SIZE
from migration.plan import DOUBLE_READ, DOUBLE_WRITE, MIRROR
from migration.positions import CopiedTopic, EnginePositions
from migration.reconcile.plan_check import DIFFERENCES
from migration.rehearsal.blockers import blockers
from migration.rehearsal.kafka_copies import KafkaCopies, SampledTopic, remove
from migration.rehearsal.ledger import LoadLedger, Verdict
from migration.rehearsal.load import PULL_MAX
from migration.rehearsal.names import RehearsalNames
from migration.rehearsal.report import RehearsalReport
from migration.rehearsal.stored import stored_ids
from migration.rehearsal.walk import walk_of
from migration.run import rules_of
from penstock.commands.migrate.plan import check
from penstock.commands.migrate.work import OpenedKafka, deployment_of, opened_kafka
from penstock.rehearsal.crew import RehearsalCrew
from penstock.rehearsal.definitions import write_definitions
from penstock.rehearsal.errors import RehearsalFailed
from penstock.rehearsal.site import RehearsalSite
from penstock.rehearsal.steps import StepRunner
from penstock.terminal import engines
from penstock.terminal.exits import CommandError
from penstock.terminal.instance import Instance, administration

COMMAND_S_MAX = 120.0


@dataclass(frozen=True)
class RehearsalOptions:
    """Attributes as the command's options."""

    run: str
    seed: int
    kills: int
    sample: int
    rate: float
    soak_s: float
    step_s: float
    keep: bool


class Rehearsal:
    """
    Args:
        instance, admin: the real ones, of which it only reads.
    """

    def __init__(
        self, instance: Instance, admin: Administrator, entry: PlanEntry, options: RehearsalOptions,
        progress: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._instance, self._admin, self._entry, self._options = instance, admin, entry, options
        self._progress, self._names = progress, RehearsalNames(options.run, entry.plan)
        self._site, self._ledger = RehearsalSite(options.run), LoadLedger()
        plan = entry.plan
        self.report = RehearsalReport(
            plan.name, plan.digest, plan.recipe, plan.cluster, options.run, options.seed, admin.clock.now_ms(),
            copies=self._names.topics, group_copies=self._names.groups,
        )  # fmt: skip
        self._own = Instance(self._site.data, None, {})
        self._placed: list[str] = []

    def perform(self) -> RehearsalReport:
        """Rehearse, and remove what was made. What fails is in the report. Blocks for minutes."""
        began = time.monotonic()
        with opened_kafka(self._admin, self._entry.plan.cluster) as kafka:
            self.report.blockers = self._blockers(kafka)
            try:
                self._rehearse(kafka)
            except (PenstockError, AdminError, LinkError, OSError, CommandError) as fault:
                self.report.failure = " ".join(str(fault).split()) or type(fault).__name__
            finally:
                with undisturbed():
                    self._remove(kafka)
        self.report.took_s = time.monotonic() - began
        return self.report

    def _rehearse(self, kafka: OpenedKafka) -> None:
        self._progress(f"copying {len(self._names.topics):,} topics")
        copies = KafkaCopies(self._names, kafka(), kafka.reader, kafka.producer, self._options.sample)
        sampled = copies.make()
        self._placed = copies.placed
        self.report.sampled = {name: each.records for name, each in sampled.items()}
        partitions = {name: len(each.ends) for name, each in sampled.items()}
        self._site.make()
        access = write_definitions(self._admin.store, self._site.data, self._names, kafka.definition(), partitions)
        self._progress("starting a Penstock")
        cluster = kafka.definition()
        self._site.start([cluster.password_file, cluster.ca_file])
        file = self._site.data / "plan.yaml"
        file.write_text(self._names.text(), encoding="utf-8")
        self._call("plan", str(file), "--accept", LONE_REPLICA)

        def member(options: GroupOptions, listener: GroupListener) -> GroupReader:
            definition = kafka.definition()
            return driver_of(definition).group_reader(connection_of(definition), options, listener)

        crew = RehearsalCrew(self._site, self._names, access, self._ledger, self._options.rate, member)
        try:
            self._walk(crew, sampled)
        finally:
            with undisturbed():
                crew.stop()

    def _walk(self, crew: RehearsalCrew, sampled: dict[str, SampledTopic]) -> None:
        options, is_copied = self._options, self._entry.plan.recipe != DOUBLE_READ
        with ExitStack() as stack:
            own = stack.enter_context(administration(self._own))
            plans = PlanStore(own.store, own.clock, own.who)
            runner = StepRunner(
                self._site, self._names.name, lambda: plans.read(self._names.name).state,
                lambda: self._gates(own, plans), options.step_s, self._progress,
            )  # fmt: skip
            for number, command in enumerate(walk_of(self._entry.plan.recipe, options.seed, options.kills)):
                if command.name == "retire":
                    crew.leave_kafka()
                    if is_copied:
                        self._compare()
                result = runner.run(command)
                result.caller = self._ledger.taken_view(time.monotonic())
                self.report.steps.append(result)
                if not result.is_done:
                    raise RehearsalFailed(
                        f"{command.name}: {result.refusals[-1] if result.refusals else 'it did not end'}"
                    )
                if number == 0:
                    crew.start()
                if number == 1 and self._entry.plan.recipe == MIRROR:
                    self._move_groups()
                time.sleep(options.soak_s)  # load between the steps
            self._judge(crew, own, sampled)

    def _move_groups(self) -> None:
        """Translate and set the positions of the plan's groups, as for consumers that move."""
        for name, copy in self._names.groups.items():
            if name in self._placed:
                try:
                    _, rows = self._call("positions", self._names.name, "--group", copy, "--apply")
                    lag = sum(row["end"] - row["engine"] for row in rows)
                    self.report.groups[name] = f"{len(rows):,} queues set, {lag:,} messages left to read"
                except RehearsalFailed as fault:
                    self.report.groups[name] = f"not possible: {fault}"

    def _judge(self, crew: RehearsalCrew, own: Administrator, sampled: dict[str, SampledTopic]) -> None:
        """Compare what was answered OK with what is stored and with what consumers got."""
        self._progress("waiting for what was sent")
        crew.stop_sending()
        crew.wait_received()
        kills = sum(bool(each.killed) for each in self.report.steps)
        partitions = sum(len(each.ends) for each in sampled.values())
        again_max = kills * (PULL_MAX * crew.consumers + FETCH_RECORDS_MAX * partitions)
        verdicts = [self._ledger.judged(rows, again_max, has_order=False) for rows in crew.received().values()]
        self.report.received = max(verdicts, key=lambda each: (each.lost, each.doubled, each.again))
        if self._entry.plan.recipe != DOUBLE_READ:
            self.report.stored = self._stored(own)

    def _stored(self, own: Administrator) -> Verdict:
        topics = []
        for name in self._names.topics.values():
            entry = own.store.get("topic", name)
            if entry is not None:
                definition = TopicDefinition.from_value(name, entry.value)
                topics.append(CopiedTopic(name, definition.made_ms, definition.queues))
        with engines.connected(self._own) as links:
            return self._ledger.judged(stored_ids(EnginePositions(links, stored_placed_topics(own.store)), topics))

    def _call(self, *arguments: str) -> tuple[int, Any]:
        """Run a command of `penstock migrate` to its end. Raises RehearsalFailed: its values are wrong."""
        process = self._site.begin(["migrate", *arguments, "-o", "json"])
        try:
            out, err = process.communicate(timeout=COMMAND_S_MAX)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode not in (0, 1) or not out.strip():
            raise RehearsalFailed(" ".join((err or out).split()) or f"penstock migrate {arguments[0]} has failed")
        return process.returncode, json.loads(out)

    def _compare(self) -> None:
        """Compare both sides. What is doubled on one of them is judged by the ledger, which knows who has sent again."""
        self._progress("comparing both sides")
        _, found = self._call("verify", self._names.name, "--all")
        counts = {name: sum(topic[name] for topic in found["topic_rows"]) for name in DIFFERENCES}
        self.report.doubled = sum(count for name, count in counts.items() if name.startswith("doubled"))
        self.report.differing = sum(counts.values()) - self.report.doubled

    def _gates(self, own: Administrator, plans: PlanStore) -> dict[str, Any]:
        """Numbers of a status. Empty while a part that was killed does not answer."""
        entry = plans.read(self._names.name)
        try:
            with deployment_of(self._own, own, entry.plan, lambda sentence: None) as deployment:
                facts = deployment.facts(with_positions=True)
        except (CommandError, PenstockError, OSError):
            return {}
        return gate_numbers(facts, entry.plan.recipe)

    def _blockers(self, kafka: OpenedKafka) -> list[str]:
        """What would block the real run now."""
        plan, facts = self._entry.plan, None
        faults: list[str] = []
        try:
            check(self._admin, plan, (LONE_REPLICA, MESSAGE_SIZE))
        except InvalidDefinition as wrong:
            faults += wrong.faults
        try:
            with deployment_of(self._instance, self._admin, plan, lambda sentence: None) as deployment:
                is_begun = bool(self._admin.store.taken("topic", plan.topic_names))
                facts = deployment.facts(with_positions=is_begun, with_leftovers=True)
        except (CommandError, PenstockError, OSError) as fault:
            faults.append(f"the real deployment cannot be asked: {fault}")
        topics = find_topics(kafka(), plan.topic_names)
        with closing(kafka.groups()) as groups:
            found = find_groups(kafka(), groups, topics)
        return blockers(plan, faults, facts, rules_of(plan), topics, found)

    def _remove(self, kafka: OpenedKafka) -> None:
        """Remove all that was made, or tell how."""
        run = self._options.run
        with suppress(OSError):
            self._site.stop()
        if self._options.keep:
            self._progress(f"kept: {self._site.data} and the copies in Kafka: remove them by --remove {run}")
            return
        try:
            topics, groups = remove(kafka(), run)
            self._site.remove()
        except (PenstockError, OSError) as fault:
            self._progress(f"not all of it could be removed: {fault}: use --remove {run}")
            return
        self._progress(f"removed {len(topics):,} topics and {len(groups):,} groups in Kafka, and the rehearsal's data")


def gate_numbers(facts: Facts, recipe: str) -> dict[str, Any]:
    """What the gates of a recipe count, as a report shows it."""
    topics = [*facts.topics.values()]
    if recipe == DOUBLE_READ:
        return {"groups_behind": sum(each.kafka_lag or 0 for topic in topics for each in topic.groups)}
    found = {"copy_lacks": sum(each.behind_in or 0 for each in topics if each.home == IN_KAFKA and not each.secondary)}
    if recipe == DOUBLE_WRITE:
        return found | {"waiting_in_journals": sum(each.messages for each in facts.waiting)}
    return found | {
        "copy_back_lacks": sum(each.behind_out or 0 for each in topics if each.is_moved and each.has_copy_out)
    }


def remove_left(admin: Administrator, cluster: str, run: str) -> dict[str, Any]:
    """Remove what a killed or kept rehearsal has left. Raises RehearsalFailed, KafkaFault, PlanRefused."""
    site = RehearsalSite(run)
    site.stop()
    with opened_kafka(admin, cluster) as kafka:
        topics, groups = remove(kafka(), run)
    return {"run": run, "topics": len(topics), "groups": len(groups), "data": "removed" if site.remove() else "none"}


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends the command as SIGINT does, with the removal of what was made."""

    def on_stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, on_stop) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """No signal to stop ends this part: it removes what was made."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
