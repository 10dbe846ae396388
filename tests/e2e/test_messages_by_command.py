"""Sending, watching, asking and answering from the shell, against a running `penstock up`."""

import json
import os
import re
import resource
import signal
import subprocess

import pytest

from tests.e2e.running import PENSTOCK
from tests.waiting import until


@pytest.fixture
def run(penstock_up):
    def run_it(*arguments: str, code: int = 0, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        done = penstock_up.call(*arguments, data=stdin)
        assert done.returncode == code, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return done

    return run_it


@pytest.fixture
def topic(run, request):
    name = "t" + str(abs(hash(request.node.name)))
    run("topic", "create", name, "--durability", "memory", "--queues", "3")
    return name


@pytest.fixture
def background(penstock_up):
    """Start a command that runs until it is stopped."""
    started = []

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "PENSTOCK_DATA": str(penstock_up.data),
        }  # an option would be one of reply's program
        line = [*PENSTOCK, *arguments]
        started.append(subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        each.communicate()


def test_the_tail_shows_the_last_messages_in_their_order_and_moves_no_group(run, topic):
    for number in range(3):
        run("send", topic, f"m{number}", "--key", f"k{number}", "-q")
    assert run("message", "tail", topic, "--last", "2").stdout == b"m1\nm2\n"
    assert run("message", "tail", topic, "--from", "1h", "--format", "%k %v").stdout.splitlines()[0] == b"k0 m0"
    assert run("message", "tail", topic, "--last", "0").stdout == b""
    assert run("pull", topic, "-g", topic, "--max", "9", "--format", "%k").stdout.count(b"\n") == 3
    assert run("message", "tail", topic).stdout.count(b"\n") == 3


def test_the_tail_shows_what_was_stored_between_two_times(run, topic):
    for number in range(3):
        run("send", topic, f"m{number}", "-q")
    times = run("message", "tail", topic, "--format", "%T").stdout.decode().split()
    before_last = run("message", "tail", topic, "--from", "1h", "--to", f"@{times[2]}")
    assert before_last.stdout == b"m0\nm1\n"
    middle = run("message", "tail", topic, "--from", f"@{times[1]}", "--to", f"@{times[2]}")
    assert middle.stdout == b"m1\n"
    assert b"use it with --from" in run("message", "tail", topic, "--to", "1h", code=2).stderr
    assert b"without --follow" in run("message", "tail", topic, "--from", "2h", "--to", "1h", "-f", code=2).stderr
    assert b"a time after" in run("message", "tail", topic, "--from", "1h", "--to", "2h", code=2).stderr


def test_the_tail_takes_one_queue_and_those_that_pass_a_filter(run, topic):
    for number in range(3):
        run("send", topic, f"m{number}", "--property", f"n={number}", "-q")
    rows = [json.loads(line) for line in run("message", "tail", topic, "-o", "json").stdout.splitlines()]
    assert [row["body"] for row in rows] == [f"m{number}" for number in range(3)]
    queue = rows[0]["queue"]
    of_queue = [row["body"] for row in rows if row["queue"] == queue]
    assert run("message", "tail", topic, "--queue", str(queue)).stdout.decode().split() == of_queue
    assert run("message", "tail", topic, "--filter", "n >= 1").stdout == b"m1\nm2\n"
    assert b"^" in run("message", "tail", topic, "--filter", "n >=", code=2).stderr
    assert b"no queue 9: it has 0 to 2" in run("message", "tail", topic, "--queue", "9", code=2).stderr
    assert b"did you mean " + topic.encode() in run("message", "tail", topic + "x", code=3).stderr


def test_the_tail_follows_until_it_is_interrupted(run, topic, background):
    run("send", topic, "before")
    tail = background("message", "tail", topic, "-f")
    assert tail.stdout.readline() == b"before\n"
    run("send", topic, "--lines", "-q", stdin=b"one\ntwo\n")
    assert {tail.stdout.readline(), tail.stdout.readline()} == {b"one\n", b"two\n"}
    tail.send_signal(signal.SIGINT)
    assert tail.wait(15) == 0


def test_a_count_of_messages_is_sent_at_a_rate_with_its_number(run, topic):
    run("send", topic, "m {n}", "--count", "4", "--rate", "20", "--key", "k", "--id", "i-{n}", "-q")
    assert run("message", "tail", topic, "--format", "%i %s").stdout == b"i-1 m 1\ni-2 m 2\ni-3 m 3\ni-4 m 4\n"
    assert b"duplicates" in run("send", topic, "x", "--count", "2", "--id", "same", code=2).stderr


def test_lines_have_keys_and_a_delayed_message_is_not_there_yet(run, topic):
    run("send", topic, "--lines", "--key-sep", "=", "-q", stdin=b"a=1\nb=2=3\n")
    assert sorted(run("message", "tail", topic, "--format", "%k:%s").stdout.split()) == [b"a:1", b"b:2=3"]
    run("send", topic, "later", "--delay", "1h", "--id", "reminder")
    assert [row["id"] for row in json.loads(run("timer", "list", "--topic", topic, "-o", "json").stdout)] == [
        "reminder"
    ]
    assert b"later" not in run("message", "tail", topic).stdout


def test_an_empty_stdin_sends_nothing_unless_it_is_asked_for(run, topic):
    assert b"stdin is empty" in run("send", topic, code=2).stderr
    assert run("message", "tail", topic).stdout == b""
    run("send", topic, "--empty")
    assert run("message", "tail", topic).stdout == b"\n"


def test_a_closed_reader_ends_no_send_and_no_list_with_an_error(run, topic, penstock_up):
    data = f"--data {penstock_up.data}"
    penstock = " ".join(PENSTOCK)
    script = f"seq 5000 | {penstock} send {topic} --lines {data} | head -1; exit ${{PIPESTATUS[1]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stderr == b""
    assert run("message", "tail", topic, "--last", "9999").stdout.count(b"\n") == 5000
    for command in (f"message tail {topic} --last 5000", f"pull {topic} -g closed --no-ack"):
        script = f"{penstock} {command} {data} | head -1; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0 and done.stderr == b"", done.stderr


def test_a_request_is_answered_by_a_program_and_by_a_text(run, topic, background):
    shouting = background("reply", topic, "-g", "shouting", "--max", "1", "--", "tr", "a-z", "A-Z")
    assert run("request", topic, "boots", "--wait", "20s").stdout == b"BOOTS\n"
    assert shouting.wait(15) == 0
    fixed = background("reply", topic, "-g", "shouting", "--max", "1", "--body", "42 EUR")
    answer = json.loads(run("request", topic, "how much", "--wait", "20s", "-o", "json").stdout)
    assert answer["body"] == "42 EUR" and answer["id"]
    assert fixed.wait(15) == 0
    assert sum(row["lag"] for row in json.loads(run("group", "lag", "shouting", "-o", "json").stdout)) == 0


def test_a_request_without_a_consumer_ends_with_code_5_and_a_program_that_fails_answers_nothing(run, topic, background):
    assert b"no consumer took the request" in run("request", topic, "x", "--wait", "200ms", code=5).stderr
    failing = background("reply", topic, "-g", "failing", "--", "false")
    run("request", topic, "y", "--wait", "2s", code=5)
    until(lambda: b"false ended with code 1" in failing.stderr.readline(), "the failure is told", 15)
    failing.send_signal(signal.SIGINT)
    assert failing.wait(20) == 0
    assert b"give one of" in run("reply", topic, "-g", "g", code=2).stderr


def test_the_program_learns_key_and_topic_from_its_environment(run, topic, background):
    script = 'printf "%s/%s" "$PENSTOCK_TOPIC" "$PENSTOCK_KEY"'
    background("reply", topic, "-g", "env", "--max", "1", "--", "sh", "-c", script)
    done = run("request", topic, "x", "--key", "k-1", "--wait", "20s")
    assert done.stdout.decode() == f"{topic}/k-1{os.linesep}"


def test_an_input_without_an_end_is_refused(penstock_up):
    commands = {
        ("migrate", "plan", "/dev/zero"): "use at most 40,960 bytes",
        ("apply", "-f", "/dev/zero"): "larger than 32 MiB",
        ("send", "orders"): "stdin: a body has at most 16,000,000 bytes",
        ("send", "orders", "--lines"): "stdin: a line has at most",
        ("topic", "create", "--from", "/dev/zero"): "line 1: ",
    }
    for command, sentence in commands.items():
        with open("/dev/zero", "rb") as zeros:
            line = [*PENSTOCK, *command, "--data", str(penstock_up.data)]
            done = subprocess.run(line, stdin=zeros, capture_output=True, text=True, timeout=60, preexec_fn=bounded)
        assert done.returncode == 2 and sentence in done.stderr, (command, done.returncode, done.stderr)


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


@pytest.mark.parametrize("arguments", ["topic list", "config export", "message tail orders"])
def test_a_closed_standard_output_is_an_error_where_something_is_printed(run, penstock_up, arguments):
    run("topic", "create", "orders", "--skip-existing")
    line = f"{' '.join(PENSTOCK)} {arguments} --data {penstock_up.data} >&-"
    done = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1 and re.fullmatch(r"penstock[\w ]*: standard output(:| is) closed.*\n", done.stderr), (
        done.stderr
    )
