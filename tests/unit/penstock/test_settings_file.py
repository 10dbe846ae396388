"""`penstock.toml`: the reference page is current, `config check` and `show`, and the table of `up`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.__main__ import cli
from penstock.options_reference import page
from penstock.up.plan import ChildPlan, UpPlan
from penstock.up.ports import Hosts
from penstock.up.settings import SET_BY_UP, with_settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(monkeypatch):
    monkeypatch.delenv("PENSTOCK_SETTINGS", raising=False)

    def run_it(*arguments, code=0, env=None):
        result = CliRunner().invoke(cli, list(arguments), env=env)
        assert result.exit_code == code, result.output
        return result

    return run_it


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "penstock.toml").write_text(text)
        return str(tmp_path / "penstock.toml")

    return write


def test_the_reference_page_is_that_of_the_options():
    made = page()
    assert (ROOT / "docs" / "options.md").read_text() == made, (
        "run python -m penstock.options_reference > docs/options.md"
    )
    assert "`retention-hours`" in made and "`buffer-mib-max`" in made and "PENSTOCK_UP_PORTS" in made


def test_a_check_names_the_faults_of_all_tables(run, file):
    path = file(
        '[up]\ngroups = "many"\nport = 1\n[engine]\nretention-hour = 1\n[producer-proxy]\nconnections-max = "x"\n'
    )
    found = json.loads(run("config", "check", path, "-o", "json", code=2).stdout)["faults"]
    assert sorted(fault.split(":")[0] for fault in found) == [
        "[engine] retention-hour", "[producer-proxy] connections-max", "[up] groups", "[up] port",
    ]  # fmt: skip
    assert "no faults in [up], [engine]" in run("config", "check", file("[up]\ngroups = 2\n[engine]\n")).stdout
    assert "no such table" in run("config", "check", file("[nothing]\n"), code=2).stderr


def test_show_tells_from_where_each_option_comes(run, file):
    path = file("[engine]\nretention-hours = 24\nsegment-mib = 8\n")
    env = {"PENSTOCK_ENGINE_SEGMENT_MIB": "16"}
    rows = json.loads(run("config", "show", "engine", "--settings", path, "-o", "json", env=env).stdout)
    assert [(row["option"], row["value"], row["from"]) for row in rows] == [
        ("segment-mib", "16", "environment"), ("retention-hours", 24, "file"),
    ]  # fmt: skip
    rows = json.loads(run("config", "show", "engine", "--all", "-o", "json").stdout)
    assert {row["from"] for row in rows} == {"default"} and len(rows) > 15


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[up]\nport = 1\n", "[up] port: no such option"),
        ('[engine]\nlook-up = "id"\n', "[engine] look-up: `penstock up` sets it"),
        ("[up]\ngroups = 99999\n", "99999"),
        ("[up\n", "not TOML"),
    ],
)
def test_up_refuses_a_file_that_it_cannot_follow_before_it_starts_anything(run, file, tmp_path, text, said):
    assert said in run("up", "--data", str(tmp_path / "data"), "--settings", file(text), code=2).stderr
    assert not (tmp_path / "data").exists()


def test_every_process_of_up_reads_the_file(tmp_path):
    plan = UpPlan(
        tmp_path, Hosts(), "file:///c", tmp_path / "key", {}, [ChildPlan("engine", ["engine", "--data", "d"], None)]
    )
    (child,) = with_settings(plan, Path("/etc/penstock.toml")).children
    assert child.command == ["engine", "--data", "d", "--settings", "/etc/penstock.toml"]
    assert with_settings(plan, None) is plan


def test_what_up_sets_are_options_that_processes_have():
    assert {"data", "listen", "cluster-key", "look-up"} <= SET_BY_UP
