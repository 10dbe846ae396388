"""The `penstock` command.

A sub-command's module is imported when it is used, so that `up` stays small and `--help` is fast.
"""

import os
import sys
from importlib import import_module

import click

from common.quoting import escaped
from penstock.terminal.pipes import ClosedOutput, is_of_echo, silence_stdout
from penstock.terminal.suggestions import SuggestingGroup

# name → (module, its command's name there, one line for the overview)
COMMANDS = {
    "up": ("up", "command", "Start everything on one machine."),
    "topic": ("topic", "command", "Create, list, show, set and delete topics."),
    "group": ("group", "command", "Manage consumer groups: settings, lag, position, dead letters."),
    "filter": ("filter", "command", "Check a group's filter and show its meaning."),
    "timer": ("timer", "command", "List and cancel delayed messages."),
    "app": ("app", "command", "Manage applications: keys, grants, limits."),
    "config": ("config", "command", "Back up, restore, check and repair the configuration."),
    "apply": ("declared", "apply", "Create and change topics, families and groups as a file declares them."),
    "export": ("declared", "export", "Write topics, families and groups as YAML, for apply."),
    "connections": ("connections", "command", "List the clients of the proxies; close a connection."),
    "proxy": ("proxy", "command", "List the proxies; take one out of service, put it back."),
    "broker-group": ("broker_group", "command", "Manage broker groups: address, engine, guards."),
    "broker": ("broker", "command", "Show replicas of broker groups; change their masters."),
    "kafka": ("kafka", "command", "Manage Kafka clusters that are homes of topics."),
    "migrate": ("migrate.group", "command", "Move topics between a Kafka cluster and the engine."),
    "pipeline": ("pipeline.group", "command", "Archive, replay, compare and report on topics, on Spark."),
    "context": ("context", "command", "Name deployments, and select the one that commands use."),
    "audit": ("audit", "command", "Show administrative changes: author, old and new value."),
    "gate": ("gate", "command", "Limit what every producer proxy accepts."),
    "send": ("send", "command", "Send messages from the shell."),
    "pull": ("pull", "command", "Pull messages to the shell."),
    "request": ("request", "request", "Send a request and print its reply."),
    "reply": ("request", "reply", "Answer requests, with a text or a program."),
    "message": ("message", "command", "Show stored messages by id, key, time and offset."),
    "status": ("status", "command", "Show processes, memory, topics and lag of a deployment or a running `up`."),
    "top": ("top", "command", "Show rates, processes and lag, live."),
    "rolling-restart": ("rolling_restart", "command", "Restart the processes of a running `up` one after the other."),
    "retention": ("retention", "command", "Show why old messages are kept, and accept a clock."),
    "log": ("log", "command", "Verify, dump, count and repair the log of a stopped engine."),
    "backup": ("backup", "command", "Back up an engine's messages while it runs; verify and restore them."),
    "buffer": ("buffer", "command", "Show, export or drain a producer proxy's fallback buffer."),
    "doctor": ("doctor", "command", "Check this machine and show what is missing or misconfigured."),
    "bench": ("bench", "command", "Generate load and measure throughput, latency and CPU."),
    "engine": ("engine", "command", "Run one engine process."),
    "producer-proxy": ("producer_proxy", "command", "Run one producer proxy process."),
    "consumer-proxy": ("consumer_proxy", "command", "Run one consumer proxy process."),
    "controller": ("controller", "command", "Run one controller process of broker groups with replicas."),
    "kafka-bridge": ("kafka_bridge", "command", "Run one bridge process to Kafka clusters."),
    "console": ("console", "command", "Serve the web console."),
    "help": ("help", "command", "Show the help of a command."),
    "completion": ("completion", "command", "Print the completion script for bash, zsh or fish."),
}


class LazyGroup(SuggestingGroup):
    """A group that has its commands' names and one-line texts without importing them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[name]
        return getattr(import_module(f"penstock.commands.{module}"), attribute)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[:1] == ["version"]:
            raise click.UsageError("No such command 'version': use --version", context)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Penstock: a message gateway in front of its own message engine. `penstock up --demo` runs a demonstration.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong usage or value, 3 not found,
    4 conflict with the present state (also: a directory or address is in use),
    5 unavailable, try again later.
    """
    if context.invoked_subcommand is None:
        from penstock.terminal.next_steps import next_steps  # no other command needs it

        click.echo(next_steps())
        click.echo(context.get_help())


def main() -> None:
    """Run the command line. An error is one line; PENSTOCK_DEBUG=1 shows its traceback."""
    if sys.stdout is None:  # by Python, where it is closed
        sys.stdout = ClosedOutput()
    try:
        cli.main(prog_name="penstock", standalone_mode=True)
    except BrokenPipeError:
        silence_stdout()
        sys.exit(0)
    except Exception as fault:
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        click.echo(f"penstock: {describe(fault)}", err=True)
        sys.exit(1)


def describe(fault: BaseException) -> str:
    if isinstance(fault, OSError) and is_of_echo(fault):
        return f"standard output: {fault.strerror}"
    text = escaped(" ".join(str(fault).split()))
    return f"{text or type(fault).__name__} (PENSTOCK_DEBUG=1 shows more)"


if __name__ == "__main__":
    main()
