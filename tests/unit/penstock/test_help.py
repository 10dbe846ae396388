"""Help, hints after a misspelt word, and the completion of names."""

import logging
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from penstock.__main__ import COMMANDS, cli
from penstock.terminal.suggestions import did_you_mean
from penstock.up.lock import DirectoryLock


@pytest.fixture(autouse=True)
def logs_again():
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("PENSTOCK_CONTEXT", raising=False)
    monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
    (tmp_path / "data" / "config").mkdir(parents=True)

    def run_it(*arguments, code=0):
        result = CliRunner().invoke(cli, list(arguments))
        assert result.exit_code == code, result.output
        return result

    return run_it


def test_without_arguments_the_next_steps_come_before_the_list_of_commands(run):
    shown = run().output
    assert shown.index("penstock up") < shown.index("Usage: ") < shown.index("Commands:")
    assert "Nothing runs on" in shown
    assert max(map(len, run().output.partition("Commands:")[0].splitlines()[2:])) <= 80


def test_the_next_steps_are_others_while_one_runs_and_with_a_context(run, tmp_path, monkeypatch):
    with DirectoryLock(tmp_path / "data"):
        (tmp_path / "data" / "up.json").write_text("{}")
        assert "A Penstock serves" in run().output
    run("context", "add", "far", "--config", "file:///far")
    monkeypatch.delenv("PENSTOCK_DATA")
    assert "context far (file:///far)" in run().output


@pytest.mark.parametrize("name", [name for name in COMMANDS if not name.endswith(("proxy", "bridge"))])
def test_help_shows_what_the_option_shows(run, name):
    if COMMANDS[name][0] in ("engine", "controller", "console"):
        pytest.skip("a process, which replaces this one")
    assert run("help", name).output == run(name, "--help").output


def test_help_of_a_command_of_several_words_and_of_a_process(run):
    assert run("help", "topic", "create").output == run("topic", "create", "--help").output
    line = [sys.executable, "-P", "-m", "penstock", "help", "engine"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "usage: penstock engine" in done.stdout and "--retention-hours" in done.stdout


def test_an_example_with_a_line_end_is_shown_as_it_is_typed(run):
    assert "\n  printf 'k1:one\\nk2:two\\n' | penstock send" in run("send", "--help").output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("topc",), 2, "topic"),
        (("topic", "creat"), 2, "create"),
        (("help", "topc"), 2, "did you mean topic or top?"),
        (("help", "topic", "shw"), 2, "did you mean show?"),
        (("topic", "list", "-o", "jsn"), 2, "Did you mean json?"),
        (("topic", "create", "x", "--durability", "fsinc"), 2, "Did you mean fsync?"),
        (("topic", "list", "--limt", "3"), 2, "--limit"),
        (("topic", "show", "ordesr"), 3, "did you mean orders?"),
        (("topic", "delete", "ordesr"), 3, "did you mean orders?"),
        (("group", "show", "raeders"), 3, "did you mean readers?"),
        (("group", "pause", "raeders"), 3, "did you mean readers?"),
        (("app", "show", "shp"), 3, "did you mean shop?"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_closest_one(run, arguments, code, said):
    run("topic", "create", "orders", "payments")
    run("group", "create", "readers")
    run("app", "create", "shop")
    error = run(*arguments, code=code).stderr
    assert said in error
    assert error.lower().count("did you mean") == 1


def test_nothing_is_suggested_for_a_word_that_is_like_none(run):
    assert "did you mean" not in run("topic", "show", "zzz", code=3).stderr
    assert did_you_mean("zzz", ["orders"]) == ""
    assert did_you_mean("ORDERS", ["orders"]) == "did you mean orders?"


def complete(*words, data=None, **environment):
    """What bash is told for these words, the last of which is begun."""
    words = ("penstock", *words)
    own = {"_PENSTOCK_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    began = time.monotonic()
    result = CliRunner().invoke(cli, [], prog_name="penstock", env={**own, **environment}, standalone_mode=True)
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line], time.monotonic() - began


def test_names_of_topics_groups_applications_and_contexts_are_completed(run):
    run("topic", "create", "orders", "order-lines", "payments")
    run("topic", "create", "order.*", "--family")
    run("group", "create", "readers")
    run("app", "create", "shop")
    run("context", "add", "production", "--data", "/srv")
    assert complete("topic", "show", "order")[0] == ["order-lines", "order.*", "orders"]
    assert complete("send", "pa")[0] == ["payments"]
    assert complete("pull", "orders", "-g", "re")[0] == ["readers"]
    assert complete("app", "show", "s")[0] == ["shop"]
    assert complete("topic", "list", "--context", "pr")[0] == ["production"]


def test_completion_is_silent_and_bounded_where_the_configuration_is_away(run):
    assert complete("topic", "show", "--data", "/nowhere", "o")[0] == []
    found, took_s = complete("topic", "show", "--config", "zookeeper://127.0.0.1:1/penstock", "o")
    assert found == [] and took_s < 10
    assert complete("topic", "show", "--context", "nosuch", "o")[0] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script_that_asks_for_completions(run, shell):
    assert "_PENSTOCK_COMPLETE" in run("completion", shell).output
