"""CPU that the console costs the data path while 16 pages are open (case `open`).

Question: does the data path feel the console? Windows alternate: the console stopped (SIGSTOP), and running with 16 open
pages: 8 live tails, of which there are no more, and 8 pages whose charts are fetched every 10 s as the script does. The
figure is the difference of CPU of engine and proxies, in percent of one core; opening the pages is over then. Nobody
else sends or pulls, so that the difference is no noise of a load.
"""

import http.client
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from html import unescape
from pathlib import Path
from statistics import median

from bench.console.desk import ConsoleDesk, PageClient, console_desk, load_average
from bench.console.filling import fill, group_name, topic_name
from bench.errors import RunError
from bench.figures import Figure
from bench.servers import cpu_seconds, rss_bytes

PATH = ("engine", "producer_proxy", "consumer_proxy")
TAILS, TAILS_PER_PERSON, CHART_PAGES = 8, 2, 8
REFRESH_S = 10.0
ROUNDS = 5
CHART = re.compile(r'data-chart="([^"]+)"')
SETTLE_S, ENDED_S = 10.0, 10.0  # opening the pages is not measured


def run(scale: float, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    with console_desk() as desk:
        fill(desk, scale, say)
        return _measure(desk, seconds, say)


def _measure(desk: ConsoleDesk, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    pids = desk.instance.now().pids
    cookies = [desk.account(f"person-{number}") for number in range(TAILS // TAILS_PER_PERSON)]
    alone: list[float] = []
    watched: list[float] = []
    console: list[float] = []
    for number in range(ROUNDS):
        os.kill(pids["console"], signal.SIGSTOP)
        try:
            alone.append(_percent(pids, PATH, seconds))
        finally:
            os.kill(pids["console"], signal.SIGCONT)
        with _opened(desk, cookies):
            before_s = cpu_seconds(Path("/proc") / str(pids["console"]))
            watched.append(_percent(pids, PATH, seconds))
            console.append((cpu_seconds(Path("/proc") / str(pids["console"])) - before_s) / seconds * 100)
        say(f"open: round {number + 1}: {alone[-1]:.2f} % without, {watched[-1]:.2f} % with the console")
    costs = [with_it - without for with_it, without in zip(watched, alone, strict=True)]
    return [
        Figure("engine and proxies, the console stopped", median(alone), "% of a core"),
        Figure("engine and proxies, 16 open pages", median(watched), "% of a core"),
        Figure("the console's cost to them, by rounds", median(costs), "% of a core", most=1.0),
        Figure("the console itself", median(console), "% of a core"),
        Figure("its RSS", rss_bytes(Path("/proc") / str(pids["console"])) / 1e6, "MB", most=150.0),
        load_average(),
    ]


def _percent(pids: dict[str, int], names: tuple[str, ...], seconds: float) -> float:
    time.sleep(SETTLE_S)
    before_s = sum(cpu_seconds(Path("/proc") / str(pids[name])) for name in names)
    began = time.monotonic()
    time.sleep(seconds)
    used_s = sum(cpu_seconds(Path("/proc") / str(pids[name])) for name in names) - before_s
    return used_s / (time.monotonic() - began) * 100


@contextmanager
def _opened(desk: ConsoleDesk, cookies: list[str]) -> Iterator[None]:
    """16 open pages during the block. Raises RunError where one is refused."""
    end, faults = threading.Event(), []
    topic, group = topic_name(7), group_name(7)
    charts = [
        "/map",
        "/map",
        f"/topics/{topic}",
        f"/topics/{topic}",
        f"/groups/{group}",
        f"/groups/{group}",
        "/map",
        "/map",
    ]

    def keep(visit: Callable[[], None]) -> None:
        try:
            visit()
        except (OSError, http.client.HTTPException, RunError) as error:
            if not end.is_set():
                faults.append(repr(error))

    visits: list[Callable[[], None]] = [partial(_watch_charts, desk, cookies[0], path, end) for path in charts]
    visits += [
        partial(_tail, desk, cookies[number // TAILS_PER_PERSON], topic_name(number), end) for number in range(TAILS)
    ]
    threads = [threading.Thread(target=keep, args=(visit,), daemon=True) for visit in visits]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        end.set()
        for each in threads:
            each.join(30.0)
        time.sleep(ENDED_S)  # the console notices the end of a tail with its next event
    if faults:
        raise RunError(f"an open page ended: {faults[0]}")


def _watch_charts(desk: ConsoleDesk, cookie: str, path: str, end: threading.Event) -> None:
    with closing(PageClient(desk.place, Cookie=cookie)) as client:
        charts = [unescape(each) for each in CHART.findall(client.get(path).body.decode())]
        if not charts:
            raise RunError(f"{path} has no charts")
        while True:
            for each in charts:
                client.get(each)
            if end.wait(REFRESH_S):
                return


def _tail(desk: ConsoleDesk, cookie: str, topic: str, end: threading.Event) -> None:
    connection = http.client.HTTPConnection(*desk.place, timeout=30.0)
    with closing(connection):
        connection.request("GET", f"/topics/{topic}/messages/live", headers={"Cookie": cookie})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RunError(f"a tail of {topic}: status {answer.status}")
        while not end.is_set() and answer.readline():
            pass
