"""Settings of one benchmark."""

from dataclasses import dataclass, fields

from bench.errors import BenchError

MODES = ("send", "pull", "both")
DURABILITIES = {"default": 0, "memory": 1, "fsync": 2, "replicated": 3, "replicated_fsync": 4}
SPACINGS = ("poisson", "even")
ORDERS = ("none", "key", "queue")


@dataclass(frozen=True)
class LoadSettings:
    """One run. `both` sends and pulls at the same time; `pull` first fills the topics, then drains them."""

    mode: str = "send"
    connections: int = 16  # producers' connections, one call in flight on each
    batch: int = 1  # messages per call
    size: int = 128  # bytes of a body
    topics: int = 16
    topic_pattern: str = "bench-%d"
    family: bool = False  # one definition for all topics; each gets its first message before the warm-up
    queues: int = 8  # of each topic
    keys: int = 0  # distinct keys; 0: messages have none
    durability: str = "memory"
    seconds: float = 10.0  # of the measured window
    warmup_s: float = 2.0
    rate: float = 0.0  # messages per second, planned ahead (open loop); 0: closed loop
    spacing: str = "poisson"  # of planned times
    sequential: bool = False  # topics in order, instead of at random
    consumers: int = 1  # pull connections, in the modes that pull
    group: str = "bench-readers"
    order: str = "none"  # of the group; unless "none", the group is created for the run
    max_messages: int = 1000  # per pull
    wait_ms: int = 100
    acknowledge: bool = True
    fill: int = 3_000_000  # messages that `pull` stores before the clock starts
    timeout_s: float = 10.0  # a call without an answer for this time ends the run
    seed: int = 1

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise BenchError("; ".join(faults))

    def _faults(self):
        if self.mode not in MODES:
            yield f"mode {self.mode!r} is none of {', '.join(MODES)}"
        if self.durability not in DURABILITIES:
            yield f"durability {self.durability!r} is none of {', '.join(DURABILITIES)}"
        if self.spacing not in SPACINGS:
            yield f"spacing {self.spacing!r} is none of {', '.join(SPACINGS)}"
        if self.order not in ORDERS:
            yield f"order {self.order!r} is none of {', '.join(ORDERS)}"
        bounds = {
            "connections": (1, 10_000), "consumers": (1, 10_000), "batch": (1, 1000), "size": (0, 4 << 20), "topics": (1, 1_000_000),
            "queues": (1, 10_000), "keys": (0, 1 << 32), "seconds": (0.1, 86_400), "warmup_s": (0, 3600), "rate": (0, 1e8),
            "max_messages": (1, 1_000_000), "wait_ms": (0, 30_000), "fill": (1, 1 << 40), "timeout_s": (0.1, 3600),
        }  # fmt: skip
        for name, (least, most) in bounds.items():
            if not least <= getattr(self, name) <= most:
                yield f"{name} is {getattr(self, name)}; it must be {least:g} to {most:g}"
        if self.topics > 1 and "%d" not in self.topic_pattern:
            yield "the topic pattern needs a %d where the topic's number goes"
        if self.family and not self.topic_pattern.endswith("%d"):
            yield "a family's topic pattern ends with %d"

    @property
    def sends(self) -> bool:
        return self.mode != "pull"

    @property
    def pulls(self) -> bool:
        return self.mode != "send"

    def topic_names(self) -> list[str]:
        if "%d" not in self.topic_pattern:
            return [self.topic_pattern]
        return [self.topic_pattern.replace("%d", str(number)) for number in range(self.topics)]

    def as_dict(self) -> dict:
        return {field.name: getattr(self, field.name) for field in fields(self)}
