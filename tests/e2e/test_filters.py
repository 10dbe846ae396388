"""Filters end to end: a real `penstock up`, the shell's send and pull, a filter changed live, a restart, the engine killed."""

import pytest

from tests.e2e.running import RunningPenstock
from tests.waiting import until


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    running = RunningPenstock(tmp_path_factory.mktemp("up") / "data")
    try:
        yield running.start()
    finally:
        running.end()


@pytest.fixture
def topic(up, request):
    name = "t" + str(abs(hash(request.node.name)))
    up.run("topic", "create", name, "--queues", "2", "--durability", "memory")
    return name


def send(up, topic: str, body: str, *options: str) -> None:
    done = up.call("send", topic, body, "-q", *options)
    assert done.returncode == 0, done.stderr.decode()


def pull(up, topic: str, group: str, *options: str) -> list[str]:
    done = up.call("pull", topic, "--group", group, *options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split()


def lag(up, group: str) -> int:
    return sum(row["lag"] for row in up.run("group", "lag", group))


def test_tags_choose_messages_and_what_is_passed_over_is_no_lag(up, topic):
    up.run("group", "create", topic, "--filter", "paid || refunded")
    for tag in ("paid", "open", "refunded", "open"):
        send(up, topic, tag, "--tag", tag)
    send(up, topic, "untagged")
    assert sorted(pull(up, topic, topic)) == ["paid", "refunded"]
    assert pull(up, topic, topic, "--wait", "0") == []
    until(lambda: lag(up, topic) == 0, "what was passed over counts as done")
    assert len(pull(up, topic, topic + "-all")) == 5


def test_an_sql_filter_is_changed_live(up, topic):
    up.run("group", "create", topic, "--filter", "amount >= 100 AND country IN ('DE', 'FR')")
    for amount, country in ((99, "DE"), (100, "DE"), ("many", "DE"), (250, "FR"), (250, "IT")):
        send(up, topic, f"{country}{amount}", "--property", f"amount={amount}", "--property", f"country={country}")
    assert sorted(pull(up, topic, topic)) == ["DE100", "FR250"]
    up.run("group", "set", topic, "--filter", "header: country == 'IT'")
    send(up, topic, "old", "--property", "amount=100", "--property", "country=DE")
    send(up, topic, "new", "--property", "country=IT")
    assert pull(up, topic, topic) == ["new"]
    up.run("group", "set", topic, "--filter", "")
    send(up, topic, "any")
    assert pull(up, topic, topic) == ["any"]


def test_everything_passed_over_moves_the_progress_through_kill_and_restart(up, topic):
    up.run("group", "create", topic, "--topic-filter", topic, "kind = 'never'")
    lines = b"".join(b"%d\n" % number for number in range(20_000))
    done = up.call("send", topic, "--lines", "-q", "--property", "kind=other", data=lines)
    assert done.returncode == 0, done.stderr.decode()
    assert pull(up, topic, topic, "--wait", "3000") == []
    until(lambda: lag(up, topic) == 0, "20,000 messages are passed over")
    # Progress is written each 200 ms; a second look is behind it.
    until(lambda: all(row["progress"] == row["end"] for row in up.run("group", "lag", topic)), "progress is at the end")
    up.wait_replaced("engine", up.kill("engine"))
    send(up, topic, "after", "--property", "kind=never")
    assert pull(up, topic, topic) == ["after"]
    up.restart()
    send(up, topic, "other", "--property", "kind=other")
    send(up, topic, "again", "--property", "kind=never")
    assert pull(up, topic, topic) == ["again"]
