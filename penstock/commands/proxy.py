"""`penstock proxy`: proxies listed, taken out of service, and put back."""

import time
from dataclasses import asdict
from typing import Any

import click

from common.admin.proxies import DRAINED, SERVING, ProxyStanding, drain, find_proxy, list_proxies, others_serving
from common.admin.proxies import standing as standing_of
from common.admin.proxies import undrain as put_back
from common.config.store import ConfigStore
from common.operator_proof import machine_key
from penstock.terminal import completing
from penstock.terminal.exits import CONFLICT, UNAVAILABLE, CommandError, CommandGroup
from penstock.terminal.figures import duration, size
from penstock.terminal.instance import Instance, administration, instance_options, open_config
from penstock.terminal.output import output_option, show_one, show_rows
from penstock.terminal.progress import say, shown
from penstock.terminal.times import DurationType

COLUMNS = ("proxy", "state", "calls", "connections", "buffered")
WIDE_COLUMNS = (*COLUMNS, "repairs", "answers", "passed_on", "out", "process")
POLL_S = 0.1


@click.group("proxy", cls=CommandGroup)
def command() -> None:
    """List the proxies, take one out of service, and put it back.

    \b
    penstock proxy list
    penstock proxy drain 10.0.0.7:9701
    penstock proxy undrain 10.0.0.7:9701
    penstock proxy key m1 > m1.ops.key
    """


@command.command("list")
@output_option
@instance_options()
def list_command(instance: Instance, output: str) -> None:
    """List the proxies with their calls in progress and what their fallback buffers keep.

    Exit code 5 when a proxy does not answer.
    """
    with open_config(instance) as store:
        told = list_proxies(store)
    show_rows([_row(each) for each in told], COLUMNS, output, WIDE_COLUMNS)
    if faults := [f"{each.process}: {each.fault}" for each in told if each.fault]:
        raise CommandError("; ".join(faults), UNAVAILABLE)


@command.command("drain")
@click.argument("proxy", metavar="NAME|ADDRESS", shell_complete=completing.proxies)
@click.option("--wait", "wait_ms", type=DurationType(max_ms=3_600_000), default="60s", metavar="TIME",
    help="Wait this long for calls in progress and for the fallback buffer (default 60s).")  # fmt: skip
@click.option("--last", is_flag=True, help="Drain it also when no other proxy of its kind serves.")
@output_option
@instance_options(keys=("admin_key", "cluster_key"))
def drain_command(instance: Instance, proxy: str, wait_ms: int, last: bool, output: str) -> None:
    """Take a proxy out of service, and wait until it has nothing left to do.

    From now on it answers SHUTTING_DOWN (400) to each call, stored nowhere: clients with several proxies go on at another
    one at once. Long polls are answered, calls in progress end, and the fallback buffer is emptied into the engine.
    Messages that consumers hold are acknowledged at other proxies. /readyz says 503, so that a load balancer leaves it out.

    It stays out of service until `penstock proxy undrain`, or until its process starts again.

    Exit code 0: drained. 4: no other proxy of its kind serves, nothing was changed. 5: not drained within --wait; the
    line says what is left, and the proxy goes on with it.
    """
    keys = instance.operator_keys()
    with administration(instance) as admin:
        process = find_proxy(admin.store, proxy)
        if not last and not others_serving(admin.store, process):
            kind = process.partition("@")[0].replace("_", " ")
            raise CommandError(f"{process}: no other {kind} serves: its clients would have none (--last)", CONFLICT)
        now = drain(admin, keys, process)
        end_s = time.monotonic() + wait_ms / 1000
        with shown():
            while now.state != DRAINED and time.monotonic() < end_s:
                say(f"{process}: {_undone(now)}")
                time.sleep(POLL_S)
                now = _watched(admin.store, process)
    if now.state != DRAINED:
        raise CommandError(
            f"{process}: not drained within {duration(wait_ms / 1000)}: {_undone(now)}; it stays out of service and goes "
            "on with it", UNAVAILABLE,
        )  # fmt: skip
    show_one({"drained": process, "after": duration(now.out_s), "passed_on": now.passed_on,
              "connections": now.connections}, output)  # fmt: skip


@command.command("undrain")
@click.argument("proxy", metavar="NAME|ADDRESS", shell_complete=completing.proxies)
@output_option
@instance_options(keys=("admin_key", "cluster_key"))
def undrain_command(instance: Instance, proxy: str, output: str) -> None:
    """Put a drained proxy back into service. Clients come back to it within seconds."""
    keys = instance.operator_keys()
    with administration(instance) as admin:
        now = put_back(admin, keys, find_proxy(admin.store, proxy))
    show_one({"serving": now.process, "connections": now.connections}, output)


@command.command("key")
@click.argument("machine")
@instance_options(keys=("admin_key",))
def key_command(instance: Instance, machine: str) -> None:
    """Print the key of the proxies of MACHINE, for their option --ops-key.

    It is made from the administrator's key and the machine's name, as `hostname` shows it there: operators need no copy,
    and a proxy that is taken over can drain none of another machine.

    \b
    penstock proxy key m1 --admin-key admin.key > m1.ops.key
    """
    click.echo(machine_key(instance.admin_key(), machine).decode())


def _watched(store: ConfigStore, process: str) -> ProxyStanding:
    """Its state. Raises CommandError when it no longer answers, or serves again: nobody waits for that."""
    now = standing_of(store, process)
    if now.fault:
        raise CommandError(f"{process}: {now.fault}", UNAVAILABLE)
    if now.state == SERVING:
        raise CommandError(f"{process}: it serves again: it was restarted, or put back by another operator", CONFLICT)
    return now


def _undone(now: ProxyStanding) -> str:
    """What a proxy still has to do, in words."""
    left = now.left
    parts = [
        f"{now.calls:,} calls in progress" if now.calls else "",
        f"{now.answers:,} answers not sent yet" if now.answers else "",
        f"{left['buffered']:,} messages ({size(left['buffered_bytes'])}) in its fallback buffer"
        if left.get("buffered") else "",
        f"{left['repairs']:,} repairs of dual writes" if left.get("repairs") else "",
    ]  # fmt: skip
    return ", ".join(part for part in parts if part) or "nothing left"


def _row(each: ProxyStanding) -> dict[str, Any]:
    """All fields for scripts, and their texts for tables."""
    return {
        **asdict(each), "proxy": each.process.partition("/")[0], "kind": each.kind, "address": each.address,
        "state": each.state or "unknown", "buffered": each.left.get("buffered"), "repairs": each.left.get("repairs"),
        "out": duration(each.out_s) if each.out_s else "",
    }  # fmt: skip
