"""`penstock send` and `penstock pull` against a running `penstock up`."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import pytest

from tests.waiting import until

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    data = tmp_path_factory.mktemp("up") / "data"
    ready = data.parent / "ready.json"
    log = (data.parent / "log").open("wb")
    command = [*PENSTOCK, "up", "--data", str(data), "--ports", "auto", "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: ready.exists() or process.poll() is not None, "up to serve", 30)
        assert process.poll() is None, (data.parent / "log").read_text()
        yield SimpleNamespace(data=data, facts=json.loads(ready.read_text()))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        log.close()


@pytest.fixture
def run(up):
    def run_it(*arguments, code=0, stdin=b"", **env):
        environment = {**os.environ, "PENSTOCK_DATA": str(up.data), **env}
        result = subprocess.run([*PENSTOCK, *arguments], input=stdin, capture_output=True, env=environment, timeout=60)
        assert result.returncode == code, result.stderr.decode()
        assert b"Traceback" not in result.stderr
        return result

    return run_it


@pytest.fixture
def topic(run, request):
    name = "t" + str(abs(hash(request.node.name)))
    run("topic", "create", name, "--durability", "memory")
    return name


def test_a_message_comes_back_with_all_its_parts(run, topic):
    sent = json.loads(
        run("send", topic, "héllo", "--key", "k", "--tag", "new", "--property", "a=b=c", "-o", "json").stdout
    )
    got = json.loads(run("pull", topic, "--group", topic, "-o", "json").stdout)
    assert {name: got[name] for name in ("topic", "id", "key", "tag", "properties", "body", "attempt")} == {
        "topic": topic, "id": sent["id"], "key": "k", "tag": "new", "properties": {"a": "b=c"}, "body": "héllo", "attempt": 1,
    }  # fmt: skip


def test_what_was_acknowledged_does_not_come_again_and_the_lag_is_0(run, topic):
    run("send", topic, "once")
    assert run("pull", topic, "-g", topic).stdout == b"once\n"
    assert run("pull", topic, "-g", topic, "--wait", "0").stdout == b""
    assert sum(row["lag"] for row in json.loads(run("group", "lag", topic, "-o", "json").stdout)) == 0


def test_lines_keep_count_content_and_with_a_key_order(run, topic):
    lines = b"".join(b"line %d\n" % i for i in range(3000))
    run("send", topic, "--lines", "-q", "--key", "one", stdin=lines)
    assert run("pull", topic, "-g", topic, "--max", "1000").stdout + run("pull", topic, "-g", topic).stdout == lines


def test_a_reset_brings_everything_again(run, topic):
    run("send", topic, "again")
    run("pull", topic, "-g", topic)
    run("group", "reset", topic, "--topic", topic, "--to", "earliest")
    assert run("pull", topic, "-g", topic).stdout == b"again\n"


def test_a_reset_by_a_number_of_messages_can_be_looked_at_first(run, topic):
    run("send", topic, "--lines", "-q", "--key", "one", stdin=b"a\nb\nc\n")
    assert run("pull", topic, "-g", topic).stdout == b"a\nb\nc\n"
    reset = ("group", "reset", topic, "--topic", topic, "--to", "-2", "-o", "json")
    shown = json.loads(run(*reset, "--dry-run").stdout)
    assert sorted((row["old"], row["new"]) for row in shown)[-1] == (3, 1)
    assert run("pull", topic, "-g", topic, "--wait", "0").stdout == b""
    assert json.loads(run(*reset).stdout) == shown
    assert run("pull", topic, "-g", topic).stdout == b"b\nc\n"


def test_a_reset_to_a_moment_brings_what_was_stored_since(run, topic):
    run("send", topic, "before", "--key", "one")
    sent_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > sent_ms, "the next millisecond")
    moment = f"@{time.time_ns() // 1_000_000}"
    run("send", topic, "since", "--key", "one")
    run("pull", topic, "-g", topic)
    run("group", "reset", topic, "--topic", topic, "--to", moment)
    assert run("pull", topic, "-g", topic).stdout == b"since\n"
    assert b"a time such as" in run("group", "reset", topic, "--topic", topic, "--to", "noon", code=2).stderr


def test_a_new_group_may_begin_at_a_moment(run, topic):
    run("send", topic, "before", "--key", "one")
    sent_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > sent_ms, "the next millisecond")
    run("group", "create", topic, "--start", f"@{time.time_ns() // 1_000_000}")
    run("send", topic, "since", "--key", "one")
    assert run("pull", topic, "-g", topic).stdout == b"since\n"


def test_a_paused_group_gets_nothing_until_it_is_resumed_while_its_lag_goes_on(run, topic, up):
    run("send", topic, "first")
    run("pull", topic, "-g", topic)
    run("group", "create", topic)
    assert json.loads(run("group", "pause", topic, "-o", "json").stdout)["paused"] is True
    run("send", topic, "second")
    assert run("pull", topic, "-g", topic, "--wait", "500").stdout == b""
    rows = json.loads(run("group", "lag", topic, "-o", "json").stdout)
    assert sum(row["lag"] for row in rows) == 1
    assert max(row["lag_s"] for row in rows) > 0 and sum(row["lag_bytes"] for row in rows) > 6
    assert b"total lag: 1 messages, about" in run("group", "lag", topic).stdout
    with urllib.request.urlopen(f"http://127.0.0.1:{up.facts['ops']['engine']}/metrics", timeout=5) as page:
        assert f'penstock_engine_group_lag_messages{{group="{topic}"}} 1.0' in page.read().decode()
    assert json.loads(run("group", "resume", topic, "-o", "json").stdout)["paused"] is False
    assert run("pull", topic, "-g", topic).stdout == b"second\n"


def test_a_body_above_the_first_frames_limit_is_sent(run, topic):
    body = os.urandom(1 << 20)
    run("send", topic, "-q", stdin=body)
    assert run("pull", topic, "-g", topic).stdout == body + b"\n"


def test_an_application_needs_key_and_grant_and_loses_both_at_once(run, topic, tmp_path):
    key = json.loads(run("app", "create", "shop", "-o", "json").stdout)
    (tmp_path / "secret").write_text(key["secret"] + "\n")
    send = ("send", topic, "x", "--app", "shop", "--key-id", key["key_id"], "--secret-file", str(tmp_path / "secret"))
    assert b"may not send" in run(*send, code=1).stderr
    run("app", "grant", "shop", "--send", topic[:5] + "*")
    run(*send)
    run(*send[:-2], PENSTOCK_SECRET=key["secret"])
    run("app", "revoke", "shop", key["key_id"])
    assert b"credential rejected" in run(*send, code=1).stderr


def test_an_unknown_topic_is_exit_code_3_and_a_dead_proxy_5(run, topic):
    run("send", "nosuch", "x", code=3)
    assert b"Connection refused" in run("send", topic, "x", "--producer", "127.0.0.1:1", code=5).stderr


def test_follow_prints_what_comes_and_acknowledges_it_when_interrupted(run, up, topic):
    environment = {**os.environ, "PENSTOCK_DATA": str(up.data)}
    follower = subprocess.Popen(
        [*PENSTOCK, "pull", topic, "-g", topic, "--follow"], stdout=subprocess.PIPE, env=environment
    )
    run("send", topic, "while you wait")
    assert follower.stdout.readline() == b"while you wait\n"
    follower.send_signal(signal.SIGINT)
    assert follower.wait(15) == 0
    follower.stdout.close()
    assert run("pull", topic, "-g", topic, "--wait", "0").stdout == b""


def test_a_familys_topics_are_created_by_their_first_message_and_keep_it_from_being_deleted(run):
    run("topic", "create", "metrics.*", "--family", "--queues", "2", "--durability", "memory")
    assert json.loads(run("topic", "list", "--auto-created", "--prefix", "metrics.", "-o", "json").stdout) == []
    for name in ("metrics.a", "metrics.b", "metrics.c"):
        run("send", name, "first", "-q")
    assert run("pull", "metrics.a", "-g", "metrics").stdout == b"first\n"
    page = run("topic", "list", "--auto-created", "--prefix", "metrics.", "--after", "metrics.a", "--limit", "1")
    assert page.stdout.split()[3::2] == [b"metrics.b", b"2"]
    assert b"use --after metrics.b for the next page" in page.stderr
    assert (
        json.loads(run("topic", "list", "--auto-created", "--count", "--prefix", "metrics.", "-o", "json").stdout)[
            "auto_created"
        ]
        == 3
    )
    assert b"3 topics would lose this definition: use --force" in run("topic", "delete", "metrics.*", code=4).stderr
    run("topic", "delete", "metrics.*", "--force")
    run("send", "metrics.a", "too late", code=3)


def test_the_operators_key_is_for_its_owner_only(run, up, topic):
    run("send", topic, "x")
    assert (up.data / "operator.key").stat().st_mode & 0o777 == 0o600


def test_a_stored_message_is_found_by_its_ids_its_key_its_time_and_its_offset(run, topic):
    sent = json.loads(run("send", topic, "first", "--key", "anna", "-o", "json").stdout)
    run("send", topic, "second")

    def ask(*arguments):
        return json.loads(run("message", *arguments, "--topic", topic, "-o", "json").stdout)

    (found,) = ask("show", sent["id"])
    assert (found["body"], found["key"], found["queue"], found["offset"]) == (
        "first",
        "anna",
        sent["queue"],
        sent["offset"],
    )
    assert ask("find", "--key", "anna") == [found]
    assert [each["body"] for each in ask("find", "--from", "10m")] == ["first", "second"]
    assert ask("browse", "--queue", str(sent["queue"]), "--offset", "0")[0] == found
    assert b"first" in run("message", "show", sent["id"], "--topic", topic).stdout
    assert b"not found in topic" in run("message", "show", "nosuch", "--topic", topic, code=3).stderr
    assert b"no such topic" in run("message", "find", "--topic", "nosuch", "--from", "1h", code=3).stderr
    assert (
        b"is not a time: use an age such as"
        in run("message", "find", "--topic", topic, "--from", "yesterday", code=2).stderr
    )
    assert b"--key, --from" in run("message", "find", "--topic", topic, code=2).stderr


def test_a_topic_that_nobody_has_sent_to_is_purged_and_one_that_is_not_there_is_not_found(run, topic):
    assert json.loads(run("topic", "purge", topic, "-o", "json").stdout)["purged"] == 0
    assert json.loads(run("topic", "stats", topic, "-o", "json").stdout)["messages"] == 0
    assert b"no such topic" in run("topic", "purge", "nowhere", code=3).stderr


def at_a_terminal(up, answer, *arguments, meanwhile=None):
    """Run a command on a terminal and type an answer; returns its exit code and what was shown.

    Args:
        meanwhile: called between the question and the answer.
    """
    leader, follower = pty.openpty()
    environment = {**os.environ, "PENSTOCK_DATA": str(up.data)}
    process = subprocess.Popen(
        [*PENSTOCK, *arguments], stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    os.close(follower)
    asked = b""
    try:
        if meanwhile is not None:
            asked = os.read(process.stdout.fileno(), 65536)
            meanwhile()
        os.write(leader, answer)
        shown, _ = process.communicate(timeout=60)
    finally:
        os.close(leader)
    return process.returncode, (asked + shown).decode()


def test_a_person_at_a_terminal_is_asked_before_something_is_taken_away_and_told_how_much(up, run, topic):
    for body in ("1", "2", "3"):
        run("send", topic, body)
    run("pull", topic, "--group", topic, "--max", "1")
    reset = ("group", "reset", topic, "--topic", topic, "--to", "latest")
    for arguments, question in (
        (reset, "skips 2 messages and delivers 0 again"),
        (("topic", "delete", topic), f"Delete topic {topic} with 3 messages?"),
        (("group", "delete", topic, "--progress"), f"Delete group {topic}: its definition and its positions?"),
        (("app", "delete", "penstock-cli"), "All its keys are rejected at once."),
    ):
        code, shown = at_a_terminal(up, b"n\n", *arguments)
        assert code == 1 and question in shown and "Traceback" not in shown
    assert json.loads(run("group", "lag", topic, "-o", "json").stdout) and run("topic", "show", topic)
    code, shown = at_a_terminal(up, b"", *reset, "--yes")
    assert code == 0 and "skips" not in shown
    code, shown = at_a_terminal(up, b"y\n", "topic", "delete", topic)
    assert code == 0 and "deleted" in shown


def test_a_reset_moves_to_the_offset_that_was_shown_whatever_came_before_the_answer(up, run, topic):
    run("send", topic, "1", "--key", "k")
    run("pull", topic, "--group", topic)
    run("send", topic, "2", "--key", "k")
    latest = ("group", "reset", topic, "--topic", topic, "--to", "latest")
    code, shown = at_a_terminal(up, b"y\n", *latest, meanwhile=lambda: run("send", topic, "3", "--key", "k"))
    assert code == 0 and "skips 1 messages" in shown
    assert run("pull", topic, "--group", topic).stdout == b"3\n"


ORDERS_OF_A_TERMINAL = "\x1b]0;owned\x07\x1b[2J\u202egpj.exe\x9b2J"


def on_a_screen(up, *arguments):
    """All that a command writes to a terminal, on both of its outputs."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PENSTOCK_DATA": str(up.data)}
    process = subprocess.Popen(
        [*PENSTOCK, *arguments], stdin=follower, stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 65536):
            shown += chunk
    except OSError:  # the last writer has closed it
        pass
    finally:
        os.close(leader)
    assert process.wait(60) == 0, shown
    return shown.decode()


def test_what_a_sender_wrote_does_not_command_an_operators_terminal(up, run, topic):
    evil = ORDERS_OF_A_TERMINAL
    run("group", "create", topic, "--topic", topic, "--attempts-max", "1")
    send = ("send", topic, evil, "--key", evil, "--property", f"p={evil}")
    run(*send)
    run(*send, "--id", evil, "--delay", "1h")
    shown = [
        on_a_screen(up, *command)
        for command in (
            ("message", "tail", topic),
            ("message", "tail", topic, "--format", "%k %h %i %s"),
            ("message", "tail", topic, "-o", "table"),
            ("message", "find", "--topic", topic, "--from", "1h", "-o", "wide"),
            ("message", "find", "--topic", topic, "--from", "1h", "-o", "yaml"),
            ("timer", "list", "--topic", topic, "-o", "wide"),
            ("pull", topic, "--group", topic),
        )
    ]
    for text in shown:
        assert "exe" in text, "the text itself is shown"
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(text), text
    assert run("pull", topic, "--group", "piped").stdout == evil.encode() + b"\n", "a pipe has the bytes"


def test_a_pull_that_cannot_print_takes_no_message_or_gives_it_back(up, run, topic):
    run("send", topic, "kept")
    command = [*PENSTOCK, "pull", topic, "--group", topic]
    environment = {**os.environ, "PENSTOCK_DATA": str(up.data)}
    for redirected, said in ((">&-", "standard output is closed"), (">/dev/full", "standard output: No space left")):
        shell = ["sh", "-c", f'"$@" {redirected}', "sh", *command]
        done = subprocess.run(shell, stderr=subprocess.PIPE, env=environment, timeout=60)
        assert done.returncode == 1 and said in done.stderr.decode() and b"Traceback" not in done.stderr
        assert done.stderr.count(b"\n") == 1
    got = json.loads(run("pull", topic, "--group", topic, "-o", "json").stdout)
    assert (got["body"], got["attempt"]) == ("kept", 1)


def test_a_list_that_cannot_be_printed_names_standard_output(up):
    with open("/dev/full", "wb") as full:
        environment = {**os.environ, "PENSTOCK_DATA": str(up.data)}
        done = subprocess.run([*PENSTOCK, "topic", "list"], stdout=full, stderr=subprocess.PIPE, env=environment)
    assert (done.returncode, done.stderr) == (1, b"penstock: standard output: No space left on device\n")
