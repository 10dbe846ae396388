"""The figures that are sampled: name, words and unit; and one sample of them."""

from collections.abc import Mapping
from typing import NamedTuple

from common.contract import Code
from console.database.series_history import SeriesKey

Sample = dict[SeriesKey, float]
REFUSED = "refused."


class SampledFigure(NamedTuple):
    """Words for a chart. `unit`: of its values: `messages/s`, `messages`, `s`, `bytes`."""

    words: str
    unit: str


FIGURES: Mapping[str, SampledFigure] = {
    "in": SampledFigure("In", "messages/s"),
    "out": SampledFigure("Out", "messages/s"),
    "lag": SampledFigure("Lag", "messages"),
    "lag_s": SampledFigure("Lag in time", "s"),
    "in_flight": SampledFigure("In flight", "messages"),
    "send_p50": SampledFigure("Half of the sends within", "s"),
    "send_p99": SampledFigure("99 % of the sends within", "s"),
    "buffer": SampledFigure("In fallback buffers", "messages"),
    "buffer_s": SampledFigure("Oldest in a buffer", "s"),
    "replica_gap": SampledFigure("Not yet at the slave", "bytes"),
    "replica_gap_s": SampledFigure("Slave behind by", "s"),
    "disk_free": SampledFigure("Free", "bytes"),
    "disk_level": SampledFigure("Fill level", ""),
    "refused": SampledFigure("Refused", "messages/s"),
    "stored": SampledFigure("Stored", "messages/s"),
    "stored_bytes": SampledFigure("Bytes stored per second", "bytes"),
    "sent_p50": SampledFigure("Half of the messages within", "s"),
    "sent_p99": SampledFigure("99 % of the messages within", "s"),
}


def figure(name: str) -> SampledFigure:
    """The words of a figure; `refused.CODE` is named by its code of the contract."""
    if name.startswith(REFUSED):
        code = name.removeprefix(REFUSED)
        return SampledFigure(f"{Code._VALUES_TO_NAMES.get(int(code), '')} ({code})".strip(), "messages/s")
    return FIGURES[name]
