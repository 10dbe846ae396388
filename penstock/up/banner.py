"""The output of `penstock up` when it serves."""

from collections.abc import Iterable
from typing import Any

from penstock.up.child import Child
from penstock.up.files import ops_host


def banner(facts: dict[str, Any], seconds: float, console: str = "") -> str:
    """Endpoints, the data directory, and lines to copy.

    Args:
        console: the web console's address, at the first start with a one-time sign-in link; empty: it does not run.
    """

    def endpoint(name: str) -> str:
        return f"{facts[name]['host']}:{facts[name]['port']}"

    data, ops = facts["data"], ops_host(facts, "engine")
    return "\n".join(
        [
            *([f"Console: {console}"] if console else []),
            f"Penstock serves after {seconds:.1f} s (Ctrl-C stops it).",
            f"  send to     {endpoint('producer_proxy')}   metrics http://{ops}:"
            f"{facts['ops']['producer_proxy']}/metrics",
            f"  pull from   {endpoint('consumer_proxy')}   metrics http://{ops}:"
            f"{facts['ops']['consumer_proxy']}/metrics",
            f"  engine      {endpoint('engine')}   metrics http://{ops}:{facts['ops']['engine']}/metrics",
            f"  data        {data}",
            "Try it from another terminal:",
            f"  penstock topic create hello --data {data}",
            f"  penstock send hello 'first message' --data {data}",
            f"  penstock pull hello --group readers --data {data}",
        ]
    )


def serving_again(children: Iterable[Child]) -> str:
    return "all serve: " + ", ".join(f"{child.name} (pid {child.pid})" for child in children)
