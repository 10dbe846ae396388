"""Times and sizes of every page of a filled console, and its memory (case `pages`).

Question: is each page there within 100 ms, small, and does the console stay small? Each page is asked REPEATS times over
one connection after one call that does not count; all calls of a page follow each other, and nothing else asks.
`first byte` ends with the head of the answer. The compressed size is that of gzip -6 over the body, as a proxy before
the console sends it. Excluded: scripts and styles, which browsers keep (`assets` is their size), and the network.
"""

import gzip
import statistics
from collections.abc import Callable
from pathlib import Path

from bench.console.desk import ConsoleDesk, PageClient, console_desk, load_average
from bench.console.filling import fill, group_name, topic_name
from bench.errors import RunError
from bench.figures import Figure
from bench.servers import cpu_seconds, rss_bytes

REPEATS = 20
FIRST_BYTE_MS_MAX, COMPRESSED_KB_MAX, RSS_MB_MAX = 100.0, 150.0, 150.0
ASSETS = ("console.css", "htmx.min.js", "console.js", "palette.js", "uplot.min.js", "uplot.min.css", "charts.js")


def paths() -> dict[str, str]:
    """Every page that a person can open, by a name for the table."""
    topic, group = topic_name(7), group_name(7)
    return {
        "overview": "/", "topics": "/topics", "topics, search": "/topics?q=EVENTS.0999", "topics, no hit": "/topics?q=zzz",
        "topics, middle": "/topics?after=team-50",
        "search": "/search?q=0999", "search, middle": "/search?q=events&kind=topic&after=team-50",
        "topic": f"/topics/{topic}", "topic, 30 days": f"/topics/{topic}?range=30d",
        "topic, change": f"/topics/{topic}/change", "topic, delayed": f"/topics/{topic}/delayed",
        "messages": f"/topics/{topic}/messages", "messages, by time": f"/topics/{topic}/messages?by=time&from=2020-01-01T00:00",
        "messages, by filter": f"/topics/{topic}/messages?by=filter&filter=KEYS+%3D+'k3'",
        "groups": "/groups", "groups, search": "/groups?q=077", "group": f"/groups/{group}",
        "group, 30 days": f"/groups/{group}?range=30d", "group, reset": f"/groups/{group}/reset?topic={topic}&to=earliest",
        "group, dead letters": f"/groups/{group}/dead-letters", "applications": "/applications",
        "application": "/applications/filler", "requests": "/requests", "requests, all": "/requests?state=all",
        "request": "/requests/1", "ask": "/requests/new", "map": "/map", "map, 30 days": "/map?range=30d", "alerts": "/alerts",
        "notices": "/channels", "policy": "/policy", "masking": "/masking", "audit": "/audit", "audit, store": "/audit?of=store",
        "audit, search": "/audit?q=person-7", "people": "/people", "account": "/account", "API": "/api",
        "chart, 30 days": "/charts?subject=all&names=in,out&range=30d", "API, topics": "/api/v1/topics?q=0999",
    }  # fmt: skip


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    with console_desk() as desk:
        fill(desk, scale, say)
        return _measure(desk, say)


def _measure(desk: ConsoleDesk, say: Callable[[str], None]) -> list[Figure]:
    process = Path("/proc") / str(desk.instance.now().pids["console"])
    figures = [Figure("RSS before the first page", rss_bytes(process) / 1e6, "MB", most=RSS_MB_MAX)]
    cookie = desk.account("ada")
    by_session = PageClient(desk.place, Cookie=cookie)
    by_token = PageClient(desk.place, Authorization=f"Bearer {desk.token('ada')}")
    for name, path in paths().items():
        client = by_token if path.startswith("/api/v1/") else by_session
        first = client.get(path)
        if first.status != 200:
            raise RunError(f"{path}: status {first.status}")
        before_s = cpu_seconds(process)
        times_ms = [client.get(path).first_byte_s * 1e3 for _ in range(REPEATS)]
        cpu_ms = (cpu_seconds(process) - before_s) / REPEATS * 1e3
        small = len(gzip.compress(first.body, 6)) / 1e3
        say(f"console: {name}: {statistics.median(times_ms):.1f} ms, {len(first.body):,} bytes, {small:.1f} KB as gzip")
        figures += [
            Figure(
                f"{name}: first byte, median of {REPEATS}", statistics.median(times_ms), "ms", most=FIRST_BYTE_MS_MAX
            ),
            Figure(f"{name}: slowest", max(times_ms), "ms"),
            Figure(f"{name}: the console's CPU", cpu_ms, "ms"),
            Figure(f"{name}: size", len(first.body) / 1e3, "KB"),
            Figure(f"{name}: compressed", small, "KB", most=COMPRESSED_KB_MAX),
        ]
    assets = [by_session.get(f"/static/{name}").body for name in ASSETS]
    figures += [
        Figure("assets, compressed", sum(len(gzip.compress(each, 6)) for each in assets) / 1e3, "KB", most=COMPRESSED_KB_MAX),
        Figure("RSS after all pages", rss_bytes(process) / 1e6, "MB", most=RSS_MB_MAX),
        Figure("the console's database", (Path(desk.instance.facts["data"]) / "console/console.db").stat().st_size / 1e6, "MB"),
        load_average(),
    ]  # fmt: skip
    by_session.close()
    by_token.close()
    return figures
