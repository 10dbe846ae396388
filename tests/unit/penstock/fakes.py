"""Small stand-ins for the three processes: they announce a port, note their end, and misbehave on request."""

import json
import os
import sys
from pathlib import Path

from penstock.up.plan import ChildPlan, UpPlan
from penstock.up.ports import Hosts
from penstock.up.supervisor import Supervisor

BEHAVIOUR = """
import json, os, signal, sys, time
name, place, how = sys.argv[1:4]
fd = int(sys.argv[sys.argv.index("--ready-fd") + 1])
def note(word):
    with open(place + "/order", "a") as out: out.write(name + " " + word + "\\n")
def end(number, frame):
    note("stopped"); sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "stubborn" else end)
if how == "broken":
    print("cannot open the store"); sys.exit(3)
note("started")
os.write(fd, json.dumps({"host": "127.0.0.1", "port": 1000, "ops_port": 2000, "pid": os.getpid()}).encode() + b"\\n")
os.close(fd)
while True: signal.pause()
"""


def fake(name: str, place: Path, how: str = "good", stop_rank: int = 0, is_essential: bool = True) -> ChildPlan:
    command = [sys.executable, "-S", "-c", BEHAVIOUR, name, str(place), how]
    return ChildPlan(name, command, place / f"{name}.log", stop_rank=stop_rank, is_essential=is_essential)


def fake_plan(place: Path, **how: str) -> UpPlan:
    children = [
        fake("engine", place, how.get("engine", "good"), stop_rank=1),
        fake("producer_proxy", place, how.get("producer_proxy", "good")),
        fake("consumer_proxy", place, how.get("consumer_proxy", "good")),
    ]
    if "console" in how:
        children.append(fake("console", place, how["console"], is_essential=False))
    return UpPlan(place, Hosts(), "file:///nowhere", place / "cluster.key", {}, children)


def order(place: Path) -> list[str]:
    try:
        return (place / "order").read_text().splitlines()
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    """A zombie has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def supervise(place: Path, how: dict[str, str]) -> int:
    """Body of a supervisor process in a test: says what it does as lines, writes each announcement as JSON."""

    def on_serving(children) -> None:
        pids = {child.name: child.pid for child in children}
        print("serving " + json.dumps(pids), flush=True)

    plan = fake_plan(place, **how)
    return Supervisor(
        plan, lambda line: print(line, flush=True), on_serving, later=lambda: fake("kafka_bridge", place)
    ).run()


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    raise SystemExit(supervise(Path(sys.argv[1]), json.loads(sys.argv[2])))
