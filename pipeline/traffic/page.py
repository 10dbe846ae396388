"""The report on traffic as one HTML file: styles and plots are inline, and nothing is loaded from elsewhere. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from types import MappingProxyType

from pipeline.traffic.figures import TopicTraffic, TrafficFigures
from pipeline.traffic.forecast import DiskForecast, TopicForecast
from pipeline.traffic.plots import TimeSeries, bar_plot, quantity, time_plot
from pipeline.traffic.refusals import RefusedMessages, stepped

DETAILED_MAX = 20
"""Topics with plots; the table has all."""
QUEUES_MAX = 16
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5c6875; --line: #dfe4ea; --back: #f5f7f9; --card: #fff;
  --warn: #c2571a; --warn-back: #fdf3ec; }
.series-0 { --colour: #1d6fa5; } .series-1 { --colour: #c2571a; } .series-2 { --colour: #3d8b40; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6eaef; --soft: #9aa7b4; --line: #323c47; --back: #12171d; --card: #1b222a; --warn: #e88a52; --warn-back: #33251c; }
  .series-0 { --colour: #5aa9dd; } .series-1 { --colour: #e88a52; } .series-2 { --colour: #6fc072; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 20px; margin: 36px 0 10px; } h3 { font-size: 14px; margin: 18px 0 4px; }
p { margin: 6px 0; } .soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px 24px 20px; margin: 16px 0; }
section h2 { margin: 0 0 6px; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 18px; min-width: 130px; }
.facts b { display: block; font-size: 21px; font-weight: 600; } .facts span { color: var(--soft); font-size: 13px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: right; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 5px 8px; border-bottom: 1px solid var(--line); }
td { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
th.text { text-align: left; } td.text { min-width: 130px; text-align: left; white-space: normal; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; } svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } polyline { fill: none; stroke: var(--colour); stroke-width: 1.6; }
.point { fill: var(--colour); } .area { fill: var(--colour); fill-opacity: 0.14; }
.key { display: inline-block; background: var(--colour); width: 22px; height: 3px; vertical-align: middle; margin: 0 6px 0 14px; }
.fault { border-left: 4px solid var(--warn); padding: 4px 12px; background: var(--warn-back); margin: 8px 0; }
.plot { overflow-x: auto; }
@media (max-width: 720px) {
  main { padding: 20px 10px 40px; } section { padding: 12px; } .plot svg { width: 760px; }
  .facts { gap: 8px; } .facts div { flex: 1 1 40%; padding: 8px 12px; min-width: 0; } .facts b { font-size: 18px; }
}
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


def traffic_page(
    figures: TrafficFigures, forecasts: Mapping[str, TopicForecast], disk: DiskForecast | None, source: str,
    made_s: float, notes: Sequence[str], refusals: Mapping[str, list[RefusedMessages]] = MappingProxyType({}),
) -> str:  # fmt: skip
    """The whole page.

    Args:
        source: where the messages were read.
        notes: sentences on what the report does not have.
        refusals: by topic, also of those without a message.
    """
    parts = [f"<h1>Traffic of {_plural(len(figures.topics), 'topic')}</h1>"]
    parts.append(f'<p class="soft">{escape(source)}. Made {_moment(made_s)}. All times are UTC.</p>')
    if figures.topics:
        parts += [_facts(figures, disk), _faults(figures, forecasts), _table(figures, forecasts)]
        parts += [_topic(each, figures.step_s, refusals.get(each.topic, [])) for each in figures.topics[:DETAILED_MAX]]
    if len(figures.topics) > DETAILED_MAX:
        parts.append(f"<p>Plots are of the {DETAILED_MAX} topics with the most bytes.</p>")
    if figures.empty:
        parts.append(f"<p>Without a message: {escape(', '.join(figures.empty))}.</p>")
        parts += [_only_refused(topic, refusals[topic]) for topic in figures.empty if refusals.get(topic)]
    parts.append(
        "<section><h2>How to read this</h2>" + "".join(f"<p>{escape(note)}</p>" for note in notes) + "</section>"
    )
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Traffic</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{"".join(parts)}</main></body></html>\n'


def _facts(figures: TrafficFigures, disk: DiskForecast | None) -> str:
    topics = figures.topics
    messages, size = sum(each.messages for each in topics), sum(each.size_bytes for each in topics)
    first, last = min(each.first_s for each in topics), max(each.last_s for each in topics)
    span = last - first + 60
    facts = [
        (f"{messages:,}", "messages"), (quantity(size, "B"), "of bodies"),
        (quantity(messages / span, ""), "messages/s on average"), (_duration(span), f"from {_moment(first)}"),
    ]  # fmt: skip
    if disk is not None:
        days = "> 10 years" if disk.days is None else _plural(disk.days, "day")
        facts.append((days, f"until {quantity(disk.free_bytes, 'B')} are full"))
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in facts)
    return f'<div class="facts">{cells}</div>'


def _faults(figures: TrafficFigures, forecasts: Mapping[str, TopicForecast]) -> str:
    found = [f"{each.topic}: {fault}" for each in figures.topics for fault in forecasts[each.topic].faults]
    if not found:
        return ""
    return "<h2>Limits that do not fit</h2>" + "".join(f'<p class="fault">{escape(each)}.</p>' for each in found)


def _table(figures: TrafficFigures, forecasts: Mapping[str, TopicForecast]) -> str:
    names = (
        "topic",
        "messages",
        "bytes",
        "busiest minute",
        "p50",
        "p99",
        "keys",
        "queue skew",
        "per day",
        "growth per day",
        "kept",
    )
    rows = []
    for each in figures.topics:
        ahead = forecasts[each.topic]
        growth = "–" if ahead.growth_per_day is None else _signed(ahead.growth_per_day)
        cells = [
            f"{each.messages:,}", quantity(each.size_bytes, "B"), f"{quantity(each.peak_messages / 60)}/s",
            _ms(each.p50_ms), _ms(each.p99_ms), f"{each.keys:,}", f"{each.queue_skew:.2f}",
            quantity(ahead.bytes_per_day, "B"), growth, quantity(ahead.kept_bytes, "B"),
        ]  # fmt: skip
        rows.append(
            f'<tr><td class="text">{escape(each.topic)}</td>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        )
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<section class="wide"><h2>Topics</h2><table><tr>{head}</tr>{"".join(rows)}</table></section>'


def _only_refused(topic: str, refused: list[RefusedMessages]) -> str:
    return f"<section><h2>{escape(topic)}</h2>{refused_table(refused)}</section>"


def _topic(each: TopicTraffic, step_s: int, refused: list[RefusedMessages]) -> str:
    times = [step.at_s for step in each.steps]
    # A step without a message counts as 0, so that the line goes down there.
    every = list(range(times[0], times[-1] + step_s, step_s))
    steps = {step.at_s: step for step in each.steps}

    def rate(name: str) -> list[float | None]:
        return [getattr(steps[at], name) / step_s if at in steps else 0.0 for at in every]

    step = _duration(step_s).removeprefix("1 ")
    parts = [
        f"<h2>{escape(each.topic)}</h2>",
        f'<p class="soft">{_moment(each.first_s)} to {_moment(each.last_s + 60)}, one point per {step}.</p>',
    ]
    parts += [
        "<h3>Messages per second</h3>",
        time_plot(every, step_s, [TimeSeries("messages", rate("messages"))], "", True),
    ]
    parts += [
        "<h3>Bytes of bodies per second</h3>",
        time_plot(every, step_s, [TimeSeries("bytes", rate("size_bytes"))], "B", True),
    ]
    if each.timed:
        lines = [
            TimeSeries(name, [getattr(steps[at], field) if at in steps else None for at in every])
            for name, field in (("p50", "p50_ms"), ("p99", "p99_ms"))
        ]
        keys = '<i class="key series-0"></i>p50<i class="key series-1"></i>p99'
        parts.append(f"<h3>From sent to stored {keys}</h3>")
        parts += [time_plot(every, step_s, lines, "ms")]
        parts.append(
            f'<p class="soft">{each.timed:,} of {each.messages:,} messages have a time of sending: p50 {_ms(each.p50_ms)}, '
            f"p90 {_ms(each.p90_ms)}, p99 {_ms(each.p99_ms)}, largest {_ms(each.max_ms)}.</p>"
        )
    if refused:
        parts += _refused(refused, times[0], times[-1], step_s)
    queues = sorted(each.queues, key=lambda one: -one.messages)[:QUEUES_MAX]
    more = f", the {QUEUES_MAX} fullest of {len(each.queues)}" if len(each.queues) > QUEUES_MAX else ""
    parts += [f"<h3>Messages per queue{more} (skew {each.queue_skew:.2f})</h3>"]
    parts.append(bar_plot([(f"queue {one.name}", one.messages) for one in queues], each.messages))
    if each.top_keys:
        parts += ["<h3>Most frequent keys</h3>", bar_plot(each.top_keys, each.messages)]
    if each.applications:
        parts += ["<h3>Messages per application</h3>", bar_plot(each.applications[:QUEUES_MAX], each.messages)]
    return f"<section>{''.join(parts)}</section>"


def _refused(refused: list[RefusedMessages], first_s: int, last_s: int, step_s: int) -> list[str]:
    """The plot and the table, at least from the first to the last step of the messages."""
    wide_s = max(step_s, refused[0].step_s)
    counts = stepped(refused, wide_s)
    begin_s, end_s = min([*counts, first_s - first_s % wide_s]), max([*counts, last_s]) + wide_s
    every = list(range(begin_s, end_s, wide_s))
    line = TimeSeries("refused", [counts.get(at, 0.0) / wide_s for at in every])
    return ["<h3>Refused messages per second</h3>", time_plot(every, wide_s, [line], "", True), refused_table(refused)]


def refused_table(refused: list[RefusedMessages]) -> str:
    """The codes, each with its applications below it."""
    rows = []
    for row in refused:
        who = "all" if row.application is None else row.application or "without a valid credential, or one of many"
        code = f"{escape(row.name)} ({row.code})" if row.application is None else ""
        rows.append(f'<tr><td>{code}</td><td>{row.messages:,}</td><td class="text">{escape(who)}</td></tr>')
    head = '<th>code</th><th>refused</th><th class="text">application</th>'
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _signed(per_day: float) -> str:
    return f"{'+' if per_day >= 0 else '−'}{quantity(abs(per_day), 'B')}"


def _ms(value: int | None) -> str:
    return "–" if value is None else f"{value:,} ms"


def _duration(seconds: int) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size and (seconds % size == 0 or seconds >= 2 * size):
            return _plural(round(seconds / size, 1), name)
    return _plural(seconds, "second")


def _plural(count: float, name: str) -> str:
    return f"{count:,g} {name}{'' if count == 1 else 's'}"


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%-d %b %Y %H:%M")
