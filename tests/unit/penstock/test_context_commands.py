"""`penstock context`: the file, its rights, and which deployment a command works on."""

import json
import stat

import pytest
from click.testing import CliRunner

from penstock.__main__ import cli
from penstock.terminal import contexts
from penstock.terminal.contexts import ConnectionContext, ContextFile, choose_place
from penstock.terminal.exits import CommandError

VARIABLES = (contexts.CONTEXT_VARIABLE, contexts.DATA_VARIABLE, contexts.CONFIG_VARIABLE)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config-home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def run():
    def run_it(*arguments, code=0):
        result = CliRunner().invoke(cli, list(arguments))
        assert result.exit_code == code, result.output
        if code > 2:
            assert len(result.stderr.splitlines()) == 1
        return result

    return run_it


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "shop.secret"
    path.write_text("5ecret")
    path.chmod(0o600)
    return path


def test_the_first_context_is_selected_and_the_file_is_for_its_owner_only(run):
    run("context", "add", "one", "--data", "/srv/one")
    run("context", "add", "two", "--config", "file:///srv/two/config")
    assert stat.S_IMODE(contexts.path().stat().st_mode) == 0o600
    assert stat.S_IMODE(contexts.path().parent.stat().st_mode) == 0o700
    rows = json.loads(run("context", "list", "-o", "json").stdout)
    assert [(row["name"], row["selected"]) for row in rows] == [("one", True), ("two", False)]
    assert json.loads(run("context", "show", "-o", "json").stdout)["data"] == "/srv/one"


def test_the_file_names_the_secrets_file_and_not_the_secret(run, secret):
    run(
        "context",
        "add",
        "shop",
        "--config",
        "file:///c",
        "--app",
        "shop",
        "--key-id",
        "k-1",
        "--secret-file",
        str(secret),
    )
    text = contexts.path().read_text()
    assert str(secret) in text and "5ecret" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "nothing to connect to"),
        (("--config", "file:///c", "--app", "shop"), "--app needs --key-id"),
        (("--config", "file:///c", "--key-id", "k-1"), "no application is given"),
        (("--producer", "nowhere"), "not an address: use HOST:PORT"),
        (("--config", "file:///c", "--tls-ca", "/nope"), "no such file"),
        (("--config", "file:///c", "--admin-key", "/nope"), "--admin-key /nope: no such file"),
    ],
)
def test_a_context_that_cannot_work_is_refused_in_one_line(run, options, said):
    assert said in run("context", "add", "bad", *options, code=2).stderr
    assert not contexts.path().exists()


def test_a_secret_that_others_can_read_is_refused(run, secret):
    secret.chmod(0o644)
    options = ("--config", "file:///c", "--app", "shop", "--key-id", "k-1", "--secret-file", str(secret))
    assert "chmod 600" in run("context", "add", "shop", *options, code=2).stderr


def test_a_context_is_replaced_only_when_asked_to_and_the_selected_one_may_go(run):
    run("context", "add", "one", "--data", "/srv/one")
    assert "--replace" in run("context", "add", "one", "--data", "/srv/other", code=4).stderr
    run("context", "add", "one", "--data", "/srv/other", "--replace")
    assert json.loads(run("context", "show", "one", "-o", "json").stdout)["data"] == "/srv/other"
    run("context", "remove", "one")
    assert json.loads(run("context", "list", "-o", "json").stdout) == []
    assert "no context is selected" in run("context", "show", code=2).stderr


def test_an_unknown_name_is_exit_code_3_with_the_closest_one(run):
    run("context", "add", "production", "--data", "/srv")
    for verb in ("show", "select", "remove"):
        assert "did you mean production?" in run("context", verb, "prodution", code=3).stderr
    assert "did you mean production?" in run("topic", "list", "--context", "prodution", code=3).stderr


def test_a_damaged_file_is_named_and_is_no_traceback(run):
    contexts.path().parent.mkdir(parents=True)
    contexts.path().write_text("[]")
    assert "not a file of contexts" in run("context", "list", code=2).stderr


@pytest.fixture
def three():
    made = {name: ConnectionContext(name, data=f"/{name}", config=f"file:///{name}/c") for name in ("a", "b", "c")}
    contexts.save(ContextFile(made, "a"))


@pytest.mark.parametrize(
    ("data", "config", "context", "environment", "place"),
    [
        (None, None, None, {}, ("/a", "file:///a/c", "a")),
        (None, None, None, {"PENSTOCK_DATA": "/e"}, ("/e", None, None)),
        (None, None, None, {"PENSTOCK_CONFIG": "file:///e"}, (".penstock", "file:///e", None)),
        (None, None, None, {"PENSTOCK_CONTEXT": "b"}, ("/b", "file:///b/c", "b")),
        (None, None, None, {"PENSTOCK_CONTEXT": "b", "PENSTOCK_DATA": "/e"}, ("/e", "file:///b/c", "b")),
        ("/o", None, None, {"PENSTOCK_CONTEXT": "b"}, ("/o", None, None)),
        (None, "file:///o", None, {"PENSTOCK_CONTEXT": "b"}, (".penstock", "file:///o", None)),
        (None, None, "c", {"PENSTOCK_CONTEXT": "b", "PENSTOCK_DATA": "/e"}, ("/c", "file:///c/c", "c")),
        ("/o", None, "c", {}, ("/o", "file:///c/c", "c")),
    ],
)
def test_options_win_over_the_environment_and_that_over_the_selected_context(
    three, data, config, context, environment, place
):
    chosen = choose_place(data, config, context, environment)
    assert (str(chosen.data), chosen.config, chosen.context and chosen.context.name) == place


def test_without_context_and_variables_a_command_works_here():
    assert choose_place(None, None, None, {}) == contexts.ChosenPlace(contexts.Path(contexts.HERE), None, None)


def test_an_unknown_context_of_the_environment_is_an_error_and_not_another_deployment(three):
    with pytest.raises(CommandError, match="not found"):
        choose_place(None, None, None, {"PENSTOCK_CONTEXT": "x"})


def test_a_context_without_a_data_directory_never_works_on_the_one_that_is_here(home):
    place = ConnectionContext("far", config="zookeeper://zk/penstock").place()
    assert place == home / "state" / "penstock" / "far"


def test_commands_work_on_the_selected_context(run, tmp_path):
    (tmp_path / "one" / "config").mkdir(parents=True)
    run("context", "add", "one", "--data", str(tmp_path / "one"))
    run("topic", "create", "orders")
    assert [row["name"] for row in json.loads(run("topic", "list", "-o", "json").stdout)] == ["orders"]
