"""The console as a command: its options, its faults in one line, one-time links."""

import subprocess
import sys

import pytest

from console.options import parse

CONSOLE = [sys.executable, "-P", "-m", "console"]


def run(*arguments):
    return subprocess.run([*CONSOLE, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "nowhere"], "not an address"),
        (["--engine", "a:1,b"], "not an address"),
        (["--admin-key", "/no/such"], "--admin-key /no/such"),
        (["--public-url", "ftp://x"], "use http://HOST or https://HOST"),
        (["--public-url", "https://x/path"], "without a path"),
        (["--public-url", "https://[x"], "use http://HOST or https://HOST"),
    ],
)
def test_an_option_that_cannot_be_used_is_one_sentence(tmp_path, capsys, arguments, words):
    with pytest.raises(SystemExit) as ended:
        parse(["--config", "file:///x", "--data", str(tmp_path), *arguments])
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_links_are_printed_for_the_first_account_and_an_unknown_one_is_refused(tmp_path):
    options = ["--config", (tmp_path / "config").as_uri(), "--data", str(tmp_path / "console")]
    done = run(*options, "--public-url", "https://penstock.example/", "--sign-in-link")
    assert done.returncode == 0 and done.stdout.startswith("https://penstock.example/link/")
    assert (tmp_path / "console" / "console.db").stat().st_mode & 0o077 == 0
    done = run(*options, "--sign-in-link", "nobody")
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last) == (
        1,
        "penstock console: account 'nobody': not found: name an account of the console",
    )


def test_a_start_that_is_not_possible_is_one_line(tmp_path):
    for options in (
        ["--config", "nonsense", "--data", str(tmp_path)],
        ["--config", tmp_path.as_uri(), "--data", "/proc/x"],
    ):
        done = run(*options)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("penstock console: ")
