"""Dead letters of a real group by reason and shape, and a redrive by the plan's own command."""

import json
import os
import shlex
import subprocess

import pytest
from click.testing import CliRunner
from penstock_client import Consumer, Message

from penstock.commands.pipeline.group import command
from tests.e2e.running import PENSTOCK
from tests.waiting import until

ORDERS, BROKEN, EMPTY = 30, 8, 3


@pytest.fixture(scope="module")
def buried(penstock_up, producer, tmp_path_factory):
    """A group that has rejected messages for three reasons; returns the path of a credential that may read them."""
    penstock_up.run("topic", "create", "orders", "--queues", "2")
    made = penstock_up.application("undertaker", pull=["*"], dead_letters=["readers"])
    orders = [
        {"order": number, "items": [{"sku": f"s-{number}", "price": 1.5}], "note": None} for number in range(ORDERS)
    ]
    bodies = (
        [json.dumps(each).encode() for each in orders]
        + [b"{broken %d" % each for each in range(BROKEN)]
        + [b""] * EMPTY
    )
    assert all(result.ok for result in producer.send_all([Message(topic="orders", body=body) for body in bodies]))
    host, port = penstock_up.consumer
    rejected = 0
    with Consumer(f"{host}:{port}", made.app, made.key_id, made.secret, "readers", ["orders"]) as consumer:

        def reject():
            nonlocal rejected
            for delivery in consumer.pull(50, wait_ms=1000):
                consumer.reject(delivery, reason_for(delivery.message.body or b"", rejected))
                rejected += 1
            consumer.flush()
            return rejected == len(bodies)

        until(reject, "all messages are rejected", 30)
    path = tmp_path_factory.mktemp("undertaker") / "undertaker.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(made._asdict()))
    until(
        lambda: len(penstock_up.run("group", "dead-letters", "list", "readers")) == len(bodies),
        "all are dead letters",
        30,
    )
    return path


def reason_for(body, number):
    if body.startswith(b"{broken"):
        return f"no JSON at byte {number}"
    return f"payment {number * 7919 + 10**12:x} failed after {number} ms" if body else "empty body"


def test_dead_letters_are_grouped_by_reason_and_shape_and_a_class_is_redriven_by_the_plan(
    spark, penstock_up, buried, options, tmp_path
):
    report = tmp_path / "report"
    line = [
        "dlq",
        "readers",
        "--endpoint",
        options()["endpoint"],
        "--credential",
        str(buried),
        "--report",
        str(report),
        "-o",
        "json",
    ]
    dry = json.loads(CliRunner().invoke(command, [*line, "--dry-run"]).stdout)
    assert dry == {"dry_run": True, "dead_letters": ORDERS + BROKEN + EMPTY}
    assert not report.exists()
    done = CliRunner().invoke(command, line)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["classes"] == 3
    found = json.loads((report / "dead-letters.json").read_text())
    assert [(each["reason"], each["shape"], each["letters"], each["messages"]) for each in found["classes"]] == [
        (
            "payment # failed after # ms",
            "{items: [{price: number, sku: string}], note: null, order: number}",
            ORDERS,
            ORDERS,
        ),
        ("no JSON at byte #", "text", BROKEN, BROKEN),
        ("empty body", "empty", EMPTY, EMPTY),
    ]
    first = found["classes"][0]
    assert (first["topic"], first["cause"], len(first["samples"])) == ("orders", "rejected", 2)
    assert json.loads(first["samples"][0]["text"])["items"][0]["price"] == 1.5
    assert "payment # failed" in (report / "dead-letters.md").read_text()
    plan = (report / "redrive.sh").read_text()
    subprocess.run(["sh", str(report / "redrive.sh")], check=True)  # every command is a comment
    chosen = next(each for each in found["redrive"] if each["takes"] == [2])
    assert (chosen["also_takes"], chosen["letters"]) == ([], BROKEN)
    assert f"# {chosen['command']}" in plan
    name, *arguments = shlex.split(chosen["command"])
    assert name == "penstock"
    redriven = subprocess.run(
        [*PENSTOCK, *arguments, "--data", str(penstock_up.data), "-o", "json"],
        env=os.environ,
        capture_output=True,
        check=True,
    )
    assert json.loads(redriven.stdout) == {"redriven": BROKEN}
    left = penstock_up.run("group", "dead-letters", "list", "readers")
    assert len(left) == ORDERS + EMPTY


def test_without_a_grant_the_command_says_so(spark, options, buried, tmp_path):
    done = CliRunner().invoke(
        command,
        [
            "dlq",
            "readers",
            "--endpoint",
            options()["endpoint"],
            "--credential",
            options()["credential"],
            "--report",
            str(tmp_path),
        ],
    )
    assert done.exit_code == 1
    assert "FORBIDDEN" in done.stderr or "UNKNOWN_TOPIC" in done.stderr
    assert len(done.stderr.splitlines()) == 1
