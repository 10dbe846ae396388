"""The demo from the command line to its verdict, in every language whose tool chain is here."""

import os
import subprocess
from pathlib import Path

import pytest

from penstock.demo.programs import missing
from tests.e2e.running import PENSTOCK

LINES = 3_000


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """Lines that are easily lost or mixed up: empty, equal, long, of bytes that are no UTF-8, the last without its end."""
    kinds = [b"\n", b"the same\n", b"x" * 30_000 + b"\n", bytes(range(128, 256)) + b"\n", b"\t\0 line %d\r\n"]
    path = tmp_path_factory.mktemp("demo") / "text"
    body = b"".join(kind % number if b"%d" in kind else kind for number in range(LINES // 5) for kind in kinds)
    path.write_bytes(body + b"the end")
    return path


def run_demo(data: Path, text: Path, producer: str, consumer: str, *options: str) -> "subprocess.CompletedProcess[str]":
    line = [*PENSTOCK, "up", "--data", str(data), "--ports", "auto", "--demo", str(text), "--demo-exit", *options]
    languages = ["--demo-producer", producer, "--demo-consumer", consumer]
    return subprocess.run([*line, *languages], capture_output=True, text=True, timeout=300)


PAIRS = [("python", "python"), ("php", "go"), ("cpp", "php"), ("go", "cpp"), ("java", "node")]


@pytest.mark.parametrize(("producer", "consumer"), PAIRS)
def test_every_line_arrives_once_in_order_and_unchanged(tmp_path, text, producer, consumer):
    for language in (producer, consumer):
        if lacking := missing(language):
            message = f"no {language} here: {lacking}"
            pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    done = run_demo(tmp_path / "data", text, producer, consumer)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"demo: PROVEN: {LINES + 1:,} lines" in done.stdout
    assert f"{producer} → {consumer}" in done.stdout


def test_a_second_demo_on_the_directory_does_not_mix_with_the_first(tmp_path, text):
    for _ in range(2):
        done = run_demo(tmp_path / "data", text, "python", "python", "--demo-lines", "50")
        assert (done.returncode, "PROVEN: 50 lines" in done.stdout) == (0, True), done.stdout + done.stderr


def test_a_file_that_is_not_there_ends_with_a_sentence_and_code_1(tmp_path):
    done = run_demo(tmp_path / "data", tmp_path / "nothing", "python", "python")
    assert done.returncode == 1
    assert "cannot be read: No such file" in done.stdout
