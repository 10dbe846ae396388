"""CPU of finding the subscribers of a message, by the number of subscriptions.

Workload: N filters `messageType == 'type-i' && amount >= 100`, each messageType once; messages of six properties, a
tag, a key and a 128-byte body, whose messageType is one of the N, so each message comes to one filter and half of them
pass it. Three ways, in one run:

    index   engine.filter.FilterIndex, one call per message
    shared  the message is walked once, then every filter's tests are run: the best that evaluating each can do
    each    every filter by itself, as N independent groups

The figure is CPU time per message in a warm process, with the call from Python; best of several runs. Excluded: parsing
and filing filters (timed separately), the log, the link. `--plot FILE` draws the figures; it needs the extra `plots`.

    python -m bench.filters [--subscriptions 1,10,100,1000,10000] [--plot docs/runs/filters.svg]
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from common import contract
from common.filter.expression import read_filter
from common.filter.native import Filter
from common.wire import walk_send
from engine.filter.index import FilterIndex
from engine.filter.native import FORM

MESSAGES = 2_000
REPEATS = 25
BAR_GAIN = 30  # ratio to evaluating each filter, at 1,000 subscriptions
BAR_GROWTH = 1.5  # from 1,000 to 10,000


def message(subscriptions: int, seed: random.Random) -> bytes:
    """The stored bytes of one message."""
    properties = {
        "messageType": f"type-{seed.randrange(subscriptions)}", "buyerId": str(seed.randrange(10**6)), "country": "DE",
        "amount": str(seed.randrange(200)), "trace": f"{seed.getrandbits(128):032x}", "source": "web",
    }  # fmt: skip
    made = contract.Message(topic="shop.orders", body=b"b" * 128, key="customer-17", tag="paid", properties=properties)
    credential = contract.Credential(app="shop", key_id="k", issued_at_ms=0, signature=b"s" * 32)
    frame = contract.encode_call("send", 1, contract.SendRequest(credential=credential, messages=[made]))
    found = walk_send(frame).messages[0]
    return frame[found.start : found.start + found.size]


def best_us(run: Callable[[bytes], object], messages: list[bytes]) -> float:
    """Measure CPU time per message, with fewer messages where each takes long."""
    began = time.process_time()
    run(messages[0])
    count = max(20, min(len(messages), int(0.1 / max(time.process_time() - began, 1e-7))))
    best = float("inf")
    for _ in range(REPEATS):
        began = time.process_time()
        for each in messages[:count]:
            run(each)
        best = min(best, time.process_time() - began)
    return best / count * 1e6


def measure(subscriptions: int) -> dict[str, float]:
    """Microseconds per message by way; `change`: one subscription added and removed."""
    seed = random.Random(subscriptions)
    messages = [message(subscriptions, seed) for _ in range(MESSAGES)]
    formulas = [read_filter(f"messageType == 'type-{at}' && amount >= 100").formula for at in range(subscriptions)]
    index, shared = FilterIndex(), FilterIndex(keyed=False)
    filters = [Filter(formula).passes for formula in formulas]
    for at, formula in enumerate(formulas):
        index.add(at, formula)
        shared.add(at, formula)
    found = [index.matches(each) for each in messages[:50]]
    if found != [shared.matches(each) for each in messages[:50]]:
        raise AssertionError("the index and the filters disagree")
    began = time.process_time()
    for at in range(subscriptions):
        index.add(at, formulas[at])
    change_us = (time.process_time() - began) / subscriptions * 1e6
    return {
        "index": best_us(index.matches, messages),
        "shared": best_us(shared.matches, messages),
        "each": best_us(lambda each: [passes(each) for passes in filters], messages),
        "change": change_us,
    }


def draw(figures: dict[int, dict[str, float]], path: Path) -> None:
    """Draw CPU per message by subscriptions, one line per way; both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "penstock"  # the same run, the same file
    from matplotlib import pyplot

    ways = {
        "each": ("#9aa5b1", "each filter by itself"),
        "shared": ("#c2571a", "each filter, message walked once"),
        "index": ("#1b7f5c", "index"),
    }
    figure, axis = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    for way, (colour, name) in ways.items():
        values = [found[way] for found in figures.values()]
        axis.plot(list(figures), values, color=colour, marker="o", markersize=4, label=name)
        text = f"{values[-1]:,.0f} µs" if values[-1] > 10 else f"{values[-1]:.2f} µs"
        axis.annotate(text, (max(figures), values[-1]), (6, -3), textcoords="offset points", color=colour)
    axis.set(xscale="log", yscale="log", xlabel="subscriptions of the topic")
    axis.set_title("CPU per message, µs", fontsize=10)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.yaxis.set_major_formatter("{x:,g}")
    axis.margins(x=0.12)
    axis.grid(color="#eee")
    axis.legend(fontsize=8, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subscriptions", default="1,10,100,1000,10000", metavar="N,N,…")
    parser.add_argument("--plot", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.subscriptions.split(",")]
    figures = {}
    print(f"form={FORM.name}; µs of CPU per message")
    print(f"{'subscriptions':>13} {'index':>8} {'shared':>10} {'each':>10} {'gain':>8} {'change':>8}")
    for count in counts:
        found = figures[count] = measure(count)
        gain = found["shared"] / found["index"]
        print(
            f"{count:13} {found['index']:8.2f} {found['shared']:10.2f} {found['each']:10.2f} {gain:7.0f}x {found['change']:8.1f}",
            flush=True,
        )
    if 1000 in figures:
        gain = figures[1000]["shared"] / figures[1000]["index"]
        print(f"against evaluating each at 1,000: {gain:.0f}x less (bar {BAR_GAIN}x)")
        if 10_000 in figures:
            print(
                f"from 1,000 to 10,000: {figures[10_000]['index'] / figures[1000]['index']:.2f}x the cost (bar {BAR_GROWTH}x)"
            )
    if arguments.plot:
        draw(figures, arguments.plot)


if __name__ == "__main__":
    main()
