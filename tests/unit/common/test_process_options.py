"""Options of a process: the command line wins over the environment, and that over the file."""

import json
from pathlib import Path

import pytest

from common.process_options import ProcessParser, SettingsFileError, read_file, variable


@pytest.fixture
def parser(monkeypatch):
    monkeypatch.delenv("PENSTOCK_SETTINGS", raising=False)
    made = ProcessParser("penstock engine", "For tests.")
    made.add_argument("--data", required=True, metavar="DIR", help="Where.")
    made.add_argument("--retention-hours", type=float, default=72, metavar="N", help="How long (default %(default)s).")
    made.add_argument("--disk-percents", default="85,90,95", metavar="W,D,R", help="When.")
    made.add_argument("--accept", action="append", default=[], choices=("a", "b"), help="What.")
    made.add_argument("--first", action="store_true", help="Begin.")
    made.add_argument("--ready-fd", type=int, help="Internal.")
    return made


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "penstock.toml").write_text(text)
        return str(tmp_path / "penstock.toml")

    return write


def test_the_file_gives_what_nothing_else_gives(parser, file):
    path = file(
        '[engine]\ndata = "/d"\nretention-hours = 24\ndisk-percents = [1, 2, 3]\nfirst = true\naccept = ["a", "b"]\n'
    )
    found = parser.parse_args(["--settings", path])
    assert (found.data, found.retention_hours, found.disk_percents) == ("/d", 24.0, "1,2,3")
    assert found.first is True and found.accept == ["a", "b"]


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(parser, file, monkeypatch):
    path = file('[engine]\ndata = "/file"\nretention-hours = 1\naccept = ["a"]\n')
    monkeypatch.setenv("PENSTOCK_ENGINE_RETENTION_HOURS", "2")
    assert parser.parse_args(["--settings", path]).retention_hours == 2.0
    found = parser.parse_args(["--settings", path, "--retention-hours", "3", "--data=/line", "--accept", "b"])
    assert (found.retention_hours, found.data, found.accept) == (3.0, "/line", ["b"])


def test_the_environment_names_the_file_too_and_switches_flags(parser, file, monkeypatch):
    monkeypatch.setenv("PENSTOCK_SETTINGS", file('[engine]\ndata = "/d"\nfirst = true\n'))
    assert parser.parse_args([]).first is True
    monkeypatch.setenv("PENSTOCK_ENGINE_FIRST", "no")
    assert parser.parse_args([]).first is False


def test_tables_of_other_processes_are_not_read(parser, file):
    path = file('[producer-proxy]\nnonsense = 1\n[engine]\ndata = "/d"\n')
    assert parser.parse_args(["--settings", path]).data == "/d"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine]\nretention-hour = 1\n", "[engine] retention-hour: no such option: did you mean retention-hours?"),
        ("[engine]\nready-fd = 1\n", "ready-fd: no such option"),
        ("[engin]\n", "[engin]: no such table: did you mean engine?"),
        ("data = 1\n", "[data]: no such table"),
        ("[engine\n", "not TOML"),
    ],
)
def test_what_no_option_takes_is_refused_with_its_place(parser, file, capsys, text, said):
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--data", "/d", "--settings", file(text)])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_file_that_is_missing_is_named(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--data", "/d", "--settings", "/nope.toml"])
    assert "/nope.toml: cannot be read" in capsys.readouterr().err
    with pytest.raises(SettingsFileError):
        read_file(Path("/nope.toml"))


def test_a_check_names_every_fault_and_starts_nothing(parser, file, capsys):
    path = file('[engine]\nretention-hours = "long"\nfirst = 1\naccept = ["c"]\nnothing = 1\n')
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--settings", path, "--check-settings"])
    assert ended.value.code == 0
    faults = json.loads(capsys.readouterr().out)
    assert sorted(fault.split(":")[0] for fault in faults) == [
        "[engine] accept", "[engine] first", "[engine] nothing", "[engine] retention-hours",
    ]  # fmt: skip


def test_options_describe_themselves_without_those_that_no_file_may_give(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--describe-options"])
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert sorted(found) == ["accept", "data", "disk-percents", "first", "retention-hours"]
    assert found["retention-hours"]["default"] == "72" and found["retention-hours"]["text"] == "How long."
    assert (
        found["data"]["required"] and found["first"]["value"] == "true or false" and found["accept"]["value"] == "a|b"
    )


def test_variables_are_named_by_process_and_option():
    assert variable("producer-proxy", "buffer-mib-max") == "PENSTOCK_PRODUCER_PROXY_BUFFER_MIB_MAX"
