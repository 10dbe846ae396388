"""Scenarios: what runs and what goes wrong in one simulation. Values only, so that they shrink."""

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple


class Part(NamedTuple):
    """One client. `options`: arguments of its class."""

    kind: str
    name: str
    options: dict[str, Any]


class Fault(NamedTuple):
    """One thing that goes wrong, `at_ms` after the start, for `for_ms`."""

    kind: str
    at_ms: int
    for_ms: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """One simulation.

    Attributes:
        length_ms: time during which clients work and faults come. The time to heal follows.
        log: settings of the log.
        node: settings of the node.
        staged: whether the engine writes the APPEND frames of a turn together.
        threads: whether syncs and background tasks take time.
        topics: stored definitions of topics, and of families, whose names end in "*". Without any, nothing is deleted.
        theme: name of the theme that it was drawn with; see themes.py.
    """

    seed: int
    length_ms: int
    parts: tuple[Part, ...]
    faults: tuple[Fault, ...]
    log: dict[str, Any] = field(default_factory=dict)
    node: dict[str, int] = field(default_factory=dict)
    staged: bool = False
    threads: bool = True
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    theme: str = ""

    def without(self, what: Part | Fault) -> "Scenario":
        """The same without one part or fault."""
        if isinstance(what, Part):
            return replace(self, parts=tuple(each for each in self.parts if each is not what))
        return replace(self, faults=tuple(each for each in self.faults if each is not what))

    def smaller(self) -> list["Scenario"]:
        """Simpler scenarios, of which one may still fail."""
        found = [self.without(fault) for fault in self.faults]
        found += [self.without(part) for part in self.parts if len(self.parts) > 1]
        latest = max((fault.at_ms + 200 for fault in self.faults), default=0)
        for length_ms in (self.length_ms // 2, self.length_ms * 3 // 4):
            if latest <= length_ms >= 300:
                found.append(replace(self, length_ms=length_ms))
        if self.staged:
            found.append(replace(self, staged=False))
        if self.threads:
            found.append(replace(self, threads=False))
        return found

    def describe(self) -> str:
        """A text for people."""
        how = f"staged={self.staged}, threads={self.threads}, log={self.log}, node={self.node}"
        lines = [f"seed {self.seed}, {self.length_ms} ms, theme {self.theme or 'none'}, {how}"]
        lines += [f"  {each.kind} {each.name} {each.options}" for each in self.parts]
        lines += [f"  topic {name} {value}" for name, value in self.topics.items()]
        lines += [f"  at {each.at_ms} ms for {each.for_ms} ms: {each.kind} {each.options}" for each in self.faults]
        return "\n".join(lines)
