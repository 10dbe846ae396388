"""What operators watch: `topic stats`, `group describe`, and `top` on a real terminal."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from tests.e2e.running import PENSTOCK
from tests.waiting import until

ESCAPES = re.compile(r"\x1b\[[?0-9]*[a-zA-Z]")


@pytest.fixture(scope="module")
def orders(penstock_up):
    """A topic with 50 messages, of which a group has 20 behind it and 10 in flight."""
    penstock_up.run("topic", "create", "orders", "--queues", "2", "--durability", "memory")
    penstock_up.run("group", "create", "readers", "--attempts-max", "4")
    assert penstock_up.call("send", "orders", "m {n}", "--count", "50", "-q").returncode == 0
    assert penstock_up.call("pull", "orders", "-g", "readers", "--max", "20").returncode == 0
    assert penstock_up.call("pull", "orders", "-g", "readers", "--max", "10", "--no-ack").returncode == 0
    return penstock_up


def test_the_statistics_of_a_topic_have_counts_ages_size_and_groups(orders):
    found = orders.run("topic", "stats", "orders", "--seconds", "0")
    assert found["messages"] == 50 and found["per_s"] is None and 10 < found["bytes_mean"] < 100
    assert sum(row["messages"] for row in found["queues"]) == 50
    (group,) = found["groups"]
    assert group["group"] == "readers" and group["lag"] == 30 and group["in_flight"] == 10
    shown = orders.call("topic", "stats", "orders", "-o", "wide").stdout.decode()
    assert "OLDEST" in shown and "per second" in shown
    assert b"did you mean orders?" in orders.call("topic", "stats", "ordesr").stderr


def test_a_group_is_described_with_settings_lag_and_dead_letters(orders):
    found = orders.run("group", "describe", "readers")
    assert found["is_defined"] and found["settings"]["attempts_max"] == 4
    assert (found["lag"], found["in_flight"], found["dead_letters"]) == (30, 10, 0)
    assert [row["topic"] for row in found["topics"]] == ["orders"] and len(found["queues"]) == 2
    shown = orders.call("group", "describe", "readers").stdout.decode()
    assert "attempts_max=4" in shown and max(map(len, shown.splitlines())) <= 80
    orders.run("group", "create", "idle")
    assert orders.run("group", "describe", "idle")["has_pulled"] is False
    listed = {row["name"]: row["defined"] for row in orders.run("group", "list", "--all")}
    assert listed["idle"] is True and not [name for name in ("readers", "idle") if name not in listed]
    missing = orders.call("group", "describe", "reader")
    assert missing.returncode == 3 and b"did you mean readers?" in missing.stderr


def test_one_screen_of_top_fits_80_columns_and_has_processes_and_groups(orders):
    done = orders.call("top", "--once")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(lines) <= 24 and max(map(len, lines)) <= 80
    assert [word for word in ("producer@", "consumer@", "engine@", "readers") if word in done.stdout.decode()] == [
        "producer@", "consumer@", "engine@", "readers",
    ]  # fmt: skip
    assert "\x1b" not in done.stdout.decode()
    assert orders.call("top").returncode == 2


def set_size(terminal: int, columns: int, lines: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


class Terminal:
    """The end of a pseudo terminal at which a person sits."""

    def __init__(self, columns: int, lines: int) -> None:
        self.ours, self.theirs = pty.openpty()
        os.set_blocking(self.ours, False)
        set_size(self.theirs, columns, lines)
        self.text = ""

    def read(self) -> str:
        try:
            while chunk := os.read(self.ours, 65536):
                self.text += chunk.decode(errors="replace")
        except OSError:  # nothing more now
            pass
        return self.text

    def last_screen(self) -> list[str]:
        return [ESCAPES.sub("", line) for line in self.read().split("\x1b[H")[-1].split("\r\n")]


def test_top_draws_on_a_terminal_follows_its_size_and_leaves_it_as_it_was(orders):
    terminal = Terminal(80, 24)
    before = termios.tcgetattr(terminal.theirs)
    line = [*PENSTOCK, "top", "--every", "500ms", "--data", str(orders.data)]
    process = subprocess.Popen(line, stdin=terminal.theirs, stdout=terminal.theirs, stderr=terminal.theirs)
    try:
        until(lambda: terminal.read().count("readers") > 1, "two screens are drawn", 30)
        assert "\x1b[?1049h" in terminal.text and max(map(len, terminal.last_screen())) <= 80
        set_size(terminal.theirs, 50, 12)
        process.send_signal(signal.SIGWINCH)
        terminal.text = ""
        until(lambda: terminal.read().count("\x1b[H") > 2, "it is drawn again", 30)
        assert all(len(line) <= 50 for line in terminal.last_screen()) and len(terminal.last_screen()) <= 12
        os.write(terminal.ours, b"q")
        assert process.wait(20) == 0
        assert terminal.read().endswith("\x1b[?25h\x1b[?1049l") and termios.tcgetattr(terminal.theirs) == before
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(terminal.ours)
        os.close(terminal.theirs)


def test_the_processes_of_up_follow_the_file_and_the_environment_wins(penstock_factory, tmp_path):
    file = tmp_path / "penstock.toml"
    file.write_text('[up]\nports = "1"\n[engine]\nsegment-mib = 8\n[producer-proxy]\nconnections-max = 33\n')
    served = penstock_factory("--settings", str(file), environment={"PENSTOCK_ENGINE_SEGMENT_MIB": "16"})
    assert served.run("status")["engine"]["status"]["log_bytes"] == 16 << 20
    wrong = served.call("up", "--settings", str(tmp_path / "none.toml"))
    assert wrong.returncode == 2 and b"cannot be read" in wrong.stderr


def test_errors_have_the_exit_code_of_the_scheme_and_name_the_thing(orders, tmp_path):
    beyond = orders.call("message", "browse", "--topic", "orders", "--queue", "0", "--offset", "99999")
    assert beyond.returncode == 2 and b"offset 99999" in beyond.stderr
    key = ["--cluster-key", orders.facts["cluster_key"]]
    engine = [*PENSTOCK, "engine", "--listen", "127.0.0.1:0", *key, "--data"]
    locked = subprocess.run([*engine, str(orders.data / "engine")], capture_output=True, timeout=60, check=False)
    assert locked.returncode == 4 and b"held by another engine (process" in locked.stderr
    host, port = orders.producer
    line = [*PENSTOCK, "producer-proxy", "--listen", f"{host}:{port}", "--config", orders.facts["config"], *key]
    taken = subprocess.run(line, capture_output=True, timeout=60, check=False, cwd=tmp_path)
    assert taken.returncode == 4 and f"cannot listen at {host}:{port}: Address already in use".encode() in taken.stderr
