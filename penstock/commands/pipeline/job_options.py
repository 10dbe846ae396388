"""Options that jobs share, and their session."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from pyspark.sql import SparkSession

from penstock.terminal.exits import CommandError
from penstock.terminal.progress import say, shown
from pipeline.session import JOB_SETTINGS, local_session

LOWER_PRIORITY = 10
"""Added to the nice value of a job on this machine, and so of its JVM and workers: an engine and proxies that live calls
wait for come first."""
CALL_FAILED = "An error occurred while calling"


def proxy_options(what: str, is_required: bool = True) -> Callable:
    """--endpoint and --credential."""

    def add(command: Callable) -> Callable:
        command = click.option(
            "--credential", required=is_required, default=None if is_required else "", metavar="FILE",
            help="Read application, key id and secret from FILE, the output of `penstock app create -o json`.",
        )(command)  # fmt: skip
        return click.option(
            "--endpoint", required=is_required, default=None if is_required else "", metavar="HOST:PORT",
            help=f"Address of the {what} proxy; several with commas between them.",
        )(command)  # fmt: skip

    return add


def master_option(command: Callable) -> Callable:
    return click.option(
        "--master", default="local[*]", metavar="URL", show_default=True,
        help="Run on this Spark master; local[N] is this machine with N tasks at a time.",
    )(command)  # fmt: skip


@contextmanager
def job_session(name: str, master: str) -> Iterator[SparkSession]:
    """A session for one job; a session that runs before stays open. An error of a task becomes one line, its cause."""
    with shown():
        say("starting Spark")
        is_shared = SparkSession.getActiveSession() is not None
        if master.startswith("local") and not is_shared:
            os.nice(LOWER_PRIORITY)
        spark = local_session(f"penstock {name}", master, JOB_SETTINGS)
        spark.sparkContext.setLogLevel("OFF")
        try:
            yield spark
        except Exception as error:
            raise CommandError(f"{name}: {cause_of(error)}") from error
        finally:
            if not is_shared:
                spark.stop()


def cause_of(error: BaseException) -> str:
    """The last sentence of a Python traceback within an error of Spark, or the error itself."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [
        line for line in lines if line.startswith(("pipeline.errors.", "OSError", "FileNotFoundError", "pyarrow."))
    ]
    if causes:
        return causes[-1].partition(": ")[2]
    if len(lines) > 1 and lines[0].startswith(CALL_FAILED):  # the JVM's exception is on the second line
        return lines[1].lstrip(": ")
    return next(iter(lines), type(error).__name__)


def show_progress(done: int, total: int) -> None:
    say(f"{done:,} of {total:,} messages")
