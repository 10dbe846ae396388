"""The report of a plan, to file away: Markdown and JSON, with its time line and, where it was sampled, rates and lag. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from common.utc import utc
from migration.drawing import Span, lines, time_line
from migration.entries import Happening, PlanEntry
from migration.facts import IN_ENGINE, Facts

TIME_LINE, RATES, LAG = "time-line.svg", "rates.svg", "lag.svg"
CHECK_COLUMNS = ("topic", "kafka", "engine", "windows", "differing", "missing_in_engine", "missing_in_kafka",
                 "doubled_in_engine", "doubled_in_kafka", "altered", "superseded")  # fmt: skip
_BEGUN, _NOW, _GIVEN_UP = " begun", "now ", " given up"


class Sample(NamedTuple):
    """Sums over the plan's topics at one time; None: unknown then.

    Attributes:
        at_s: since the first sample.
        kafka: end offsets of Kafka.
        copied: up to where the engine has Kafka's records.
        engine: end offsets of the engine, of topics that have moved.
        behind_in, behind_out: what the engine and Kafka lack.
        faults: of the copies.
    """

    at_s: float
    kafka: int
    copied: int | None
    engine: int
    behind_in: int | None
    behind_out: int | None
    faults: int


def sample_of(facts: Facts, at_s: float) -> Sample:
    """A sample of the plan's topics."""
    topics = list(facts.topics.values())
    behind = [each.behind_in for each in topics if each.home != IN_ENGINE]
    returned = [each.behind_out for each in topics if each.is_moved and each.has_copy_out]
    return Sample(
        at_s, sum(sum(each.kafka_ends) for each in topics),
        sum(sum(each.copied_in) for each in topics) if all(each.copied_in for each in topics) else None,
        sum(sum(each.engine_ends) for each in topics), _sum(behind) if behind else None, _sum(returned) if returned else None,
        sum(len(each.faults) + len(each.late_queues) for each in topics),
    )  # fmt: skip


def _sum(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


@dataclass(frozen=True)
class Report:
    """
    Attributes:
        made_ms: when.
        topics: rows as `penstock migrate status` shows them.
        cuts: records of cuts by topic, as in the topics' entries.
        check: the last comparison, as it is kept; None: there was none.
    """

    entry: PlanEntry
    made_ms: int
    topics: Sequence[Mapping[str, Any]]
    cuts: Mapping[str, Mapping[str, Any]]
    check: Mapping[str, Any] | None
    samples: Sequence[Sample] = field(default=())

    def files(self) -> dict[str, str]:
        """The files of the report by name."""
        found = {"report.json": self._json(), "report.md": self._markdown()}
        if spans := courses(self.entry.history):
            found[TIME_LINE] = time_line(f"Courses of plan {self.entry.plan.name}", spans)
        if len(self.samples) > 1:
            found |= {RATES: self._rates(), LAG: self._lag()}
        return found

    def _json(self) -> str:
        entry = self.entry
        value = {
            "plan": entry.plan.name, "digest": entry.plan.digest, "text": entry.plan.text, "made_ms": self.made_ms,
            "state": entry.state.to_value(), "topics": list(self.topics), "cuts": self.cuts, "comparison": self.check,
            "history": [each.__dict__ for each in entry.history], "samples": [each._asdict() for each in self.samples],
        }  # fmt: skip
        return json.dumps(value, indent=1) + "\n"

    def _markdown(self) -> str:
        entry, plan = self.entry, self.entry.plan
        parts = [
            f"# Plan {plan.name}", "",
            f"Made {utc(self.made_ms)}. Digest {plan.digest}, recipe {plan.recipe}, Kafka cluster {plan.cluster}. "
            f"Step: {entry.state.step}.", "",
            "```yaml", plan.text.rstrip(), "```", "", "## Topics", "",
            *table(list(self.topics), ("topic", "home", "kafka_end", "copied", "behind", "behind_out", "notes")), "",
            "## Comparison", "", *self._comparison(), "", "## Cuts", "", *self._cuts(), "", "## Time line", "",
        ]  # fmt: skip
        if courses(entry.history):
            parts += [f"![Courses]({TIME_LINE})", ""]
        rows = [{"at": utc(each.at_ms), "who": each.who, "what": each.what} for each in entry.history]
        parts += [*table(rows, ("at", "who", "what")), ""]
        if len(self.samples) > 1:
            seconds = self.samples[-1].at_s
            parts += ["## Rates and lag", "", f"Sampled for {seconds:,.0f} s.", "", f"![Rates]({RATES})", "",
                      f"![Lag]({LAG})", ""]  # fmt: skip
        return "\n".join(parts)

    def _comparison(self) -> list[str]:
        if self.check is None:
            return ["There was none: see `penstock migrate verify`."]
        check = self.check
        first = utc(check["from_ms"]) if check["from_ms"] is not None else "the first message"
        last = utc(check["to_ms"]) if check["to_ms"] is not None else "what was copied then"
        found = [f"Made {utc(check['at_ms'])}, from {first} to {last}.", "", *table(check["topics"], CHECK_COLUMNS)]
        if check["findings"]:
            columns = ("topic", "queue", "what", "id", "kafka_offsets", "engine_offsets")
            found += ["", *table(check["findings"], columns)]
        return found

    def _cuts(self) -> list[str]:
        if not self.cuts:
            return ["No topic was cut."]
        rows = [
            {"topic": name, "epoch": each["epoch"], "at": utc(each["at_ms"]), "kafka_ends": each["kafka_ends"],
             "engine_firsts": each["engine_firsts"]}
            for name, each in self.cuts.items()
        ]  # fmt: skip
        return table(rows, ("topic", "epoch", "at", "kafka_ends", "engine_firsts"))

    def _rates(self) -> str:
        times = [each.at_s for each in self.samples]
        series = {
            "Kafka": _rates(times, [each.kafka for each in self.samples]),
            "copied": _rates(times, [each.copied or 0 for each in self.samples]),
            "engine's own": _rates(times, [each.engine for each in self.samples]),
        }
        return lines("Messages", "per second", times, series)

    def _lag(self) -> str:
        series = {
            "engine lacks": [float(each.behind_in or 0) for each in self.samples],
            "Kafka lacks": [float(each.behind_out or 0) for each in self.samples],
            "faults": [float(each.faults) for each in self.samples],
        }
        return lines("Lag and faults of the copies", "messages", [each.at_s for each in self.samples], series)


def courses(history: Sequence[Happening]) -> list[Span]:
    """The courses in a history, each from its begin to its end; one that has not ended ends with the history."""
    found: list[Span] = []
    name, since = "", 0
    for each in history:
        if _BEGUN in each.what:
            name, since = each.what.split(" ", 1)[0], each.at_ms
        elif name and (each.what.startswith(_NOW) or _GIVEN_UP in each.what):
            label = f"{name} (given up)" if _GIVEN_UP in each.what else name
            found.append(Span(label, since, each.at_ms))
            name = ""
    if name:
        found.append(Span(f"{name} (at work)", since, history[-1].at_ms))
    return found


def _rates(times: Sequence[float], values: Sequence[int]) -> list[float]:
    """Growth per second between neighbours; the first one has the second one's."""
    found = [
        max(0.0, (values[at] - values[at - 1]) / max(0.001, times[at] - times[at - 1])) for at in range(1, len(values))
    ]
    return [found[0], *found]


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """A table of Markdown."""
    head = ["| " + " | ".join(each.replace("_", " ") for each in columns) + " |", "|" + "---|" * len(columns)]
    return head + ["| " + " | ".join(_cell(row.get(each)) for each in columns) + " |" for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return "; ".join(_cell(each) for each in value) or "–"
    return str(value).replace("|", "\\|").replace("\n", " ")
