"""The console as a command: its options, its faults in one line, one-time links."""

import subprocess
import sys

import pytest

from console.__main__ import main, print_link
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
        (["--openid-client", "console"], "--openid-client: use it with --openid-issuer"),
        (["--openid-issuer", "http://id.example", "--openid-client", "c"], "use https://HOST"),
        (["--openid-issuer", "https://id.example"], "name the console's client id with --openid-client"),
        (
            ["--openid-issuer", "https://id.example", "--openid-client", "c", "--openid-role-claim", "g"],
            "use both or none",
        ),
        (["--openid-roles", "ops=root"], "use VALUE=ROLE with a role of viewer, owner, operator, admin"),
    ],
)
def test_an_option_that_cannot_be_used_is_one_sentence(tmp_path, capsys, arguments, words):
    with pytest.raises(SystemExit) as ended:
        parse(["--config", "file:///x", "--data", str(tmp_path), *arguments])
    assert ended.value.code == 2 and words in capsys.readouterr().err


def test_links_are_printed_for_the_first_account_and_an_unknown_one_is_refused(tmp_path, capsys):
    options = ["--config", (tmp_path / "config").as_uri(), "--data", str(tmp_path / "console")]
    print_link(parse([*options, "--public-url", "https://penstock.example/", "--sign-in-link"]))
    assert capsys.readouterr().out.startswith("https://penstock.example/link/")
    assert (tmp_path / "console" / "console.db").stat().st_mode & 0o077 == 0
    with pytest.raises(SystemExit, match="penstock console: account 'nobody': not found"):
        print_link(parse([*options, "--sign-in-link", "nobody"]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--restore", "missing.db"], "penstock console: restore missing.db: "),
        (["--backup", "no/folder/x"], "penstock console: backup no/folder/x: "),
        (["--schema", "17"], "penstock console: schema 17: unknown: use head, base or one of 0001"),
    ],
)
def test_a_backup_that_is_not_possible_is_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.setattr("sys.argv", ["console", "--config", "file:///x", "--data", str(tmp_path), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1 and len(lines) == 1 and words in lines[0]


def test_a_start_that_is_not_possible_is_one_line(tmp_path):
    done = run("--config", "nonsense", "--data", str(tmp_path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("penstock console: ")
