"""The command line against a running deployment: contexts, the whole cluster's state, TLS."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.e2e.running import PENSTOCK
from tests.services import require
from tests.waiting import until


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home):
    """Run a command as a user without any environment of Penstock, in a directory without one."""

    def run_it(*arguments: str, code: int = 0, stdin: bytes = b"", **more: str) -> "subprocess.CompletedProcess[bytes]":
        own = {"XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        done = subprocess.run(
            [*PENSTOCK, *arguments], input=stdin, capture_output=True, cwd=home, env={**kept, **own, **more}, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        assert b"Traceback" not in done.stderr
        return done

    return run_it


@pytest.fixture(scope="module")
def far(run, penstock_up):
    """A context that knows the configuration's URL and the admin key, as on a machine without the data directory."""
    facts = penstock_up.facts
    run("context", "add", "far", "--config", facts["config"], "--admin-key", facts["admin_key"])
    run("topic", "create", "orders", "--queues", "2")
    return "far"


def test_a_context_with_a_url_finds_proxies_and_engines_by_the_configuration(run, far, home):
    run("send", "orders", "hello", "--key", "k")
    assert run("pull", "orders", "-g", "far-readers").stdout == b"hello\n"
    rows = json.loads(run("group", "lag", "far-readers", "-o", "json").stdout)
    assert sum(row["end"] for row in rows) == 1 and sum(row["lag"] for row in rows) == 0
    key = home / "state" / "penstock" / "far" / "operator.key"
    assert key.stat().st_mode & 0o777 == 0o600 and not (home / ".penstock").exists()


def test_a_context_may_name_an_application_whose_secret_is_in_a_file(run, far, home, penstock_up):
    made = json.loads(run("app", "create", "shop", "--send", "orders", "-o", "json").stdout)
    secret = home / "shop.secret"
    secret.write_text(made["secret"])
    secret.chmod(0o600)
    run("context", "add", "shop", "--config", penstock_up.facts["config"], "--app", "shop",
        "--key-id", made["key_id"], "--secret-file", str(secret))  # fmt: skip
    run("send", "orders", "from the shop", "--context", "shop")
    assert b"may not pull" in run("pull", "orders", "-g", "r", "--context", "shop", code=1).stderr


def test_without_a_key_an_engine_is_not_asked_and_the_option_is_named(run, far, penstock_up):
    url = penstock_up.facts["config"]
    assert b"use --admin-key FILE" in run("group", "lag", "far-readers", "--config", url, code=5).stderr
    run("group", "lag", "far-readers", "--config", url, "--admin-key", penstock_up.facts["admin_key"])


def test_the_state_of_the_whole_deployment_has_versions_memory_disk_and_lag(run, far):
    state = json.loads(run("status", "-o", "json").stdout)
    assert sorted(each["kind"] for each in state["processes"]) == ["consumer_proxy", "engine", "producer_proxy"]
    for each in state["processes"]:
        assert each["state"] == "current" and each["fault"] == "" and each["version"]
        assert each["up_s"] > 0 and each["memory_bytes"] > 1 << 20
    (engine,) = state["engines"]
    assert engine["role"] == "master" and engine["disk_free_bytes"] > 0 and engine["topics"] >= 1
    text = run("status", "--seconds", "0").stdout.decode()
    assert max(map(len, text.splitlines()[1:])) <= 80 and "master" in text
    assert "MACHINE" in run("status", "-o", "wide", "--seconds", "0").stdout.decode()


def test_rates_are_those_of_the_time_between_two_looks(far, home, tmp_path):
    with (tmp_path / "sent").open("wb") as sent:
        of_sending = ("send", "orders", "x", "--count", "100000", "--rate", "200", "--context", far)
        sending = start(home, *of_sending, stdout=sent)
        try:
            until(lambda: (tmp_path / "sent").stat().st_size, "the first message to be sent", deadline_s=60)
            watching = start(home, "status", "--context", far, "--seconds", "2", "-o", "json", stdout=subprocess.PIPE)
            state = json.loads(watching.communicate(timeout=60)[0])
        finally:
            sending.terminate()
            sending.wait()
    rates = {each["kind"]: each for each in state["processes"]}
    assert rates["producer_proxy"]["in_per_s"] > 0 and rates["engine"]["in_per_s"] > 0


def test_a_process_that_hangs_is_named_and_the_exit_code_tells_it(run, far, penstock_up, tmp_path):
    proxy = start_proxy(penstock_up, tmp_path / "second.snapshot")
    name = f"producer@127.0.0.1:{proxy.facts['port']}"
    assert name in run("status", "--seconds", "0").stdout.decode()
    proxy.process.send_signal(signal.SIGSTOP)
    done = run("status", "--seconds", "0", code=1).stdout.decode()
    assert "its pages do not answer" in done and "unseen" in done
    proxy.process.kill()
    proxy.process.wait()
    assert name not in run("status", "--seconds", "0").stdout.decode()


class OwnProducerProxy:
    """A producer proxy beside those of the `up`; its ready line is read."""

    def __init__(self, process: "subprocess.Popen[bytes]", facts: dict) -> None:
        self.process, self.facts = process, facts


def start_proxy(penstock, snapshot: Path, *options: str) -> OwnProducerProxy:
    ours, theirs = os.pipe()
    engine = f"{penstock.engine[0]}:{penstock.engine[1]}"
    line = [sys.executable, "-P", "-m", "producer_proxy", "--listen", "127.0.0.1:0", "--engine", engine,
            "--cluster-key", penstock.facts["cluster_key"], "--config", penstock.facts["config"],
            "--secrets-key", penstock.facts["secrets_key"],
            "--snapshot", str(snapshot), "--ready-fd", str(theirs), *options]  # fmt: skip
    process = subprocess.Popen(line, pass_fds=[theirs], stderr=subprocess.DEVNULL)
    os.close(theirs)
    with os.fdopen(ours) as ready:
        return OwnProducerProxy(process, json.loads(ready.readline()))


def start(home: Path, *arguments: str, stdout: IO[bytes] | int) -> "subprocess.Popen[bytes]":
    """A command that runs while the test goes on. It writes to `stdout` as it goes."""
    own = {"XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state"), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen([*PENSTOCK, *arguments], stdout=stdout, cwd=home, env={**os.environ, **own})


def test_messages_are_sent_over_tls_and_another_authority_is_refused(run, far, penstock_up, tmp_path):
    require(shutil.which("openssl"), "the openssl command")
    mine, other = certificate(tmp_path, "mine"), certificate(tmp_path, "other")
    tls = ("--tls-listen", "127.0.0.1:0", "--tls-cert", str(mine[0]), "--tls-key", str(mine[1]))
    proxy = start_proxy(penstock_up, tmp_path / "tls.snapshot", *tls)
    try:
        address = f"127.0.0.1:{proxy.facts['tls_port']}"
        run("send", "orders", "in secret", "--producer", address, "--tls-ca", str(mine[0]))
        refused = run("send", "orders", "x", "--producer", address, "--tls-ca", str(other[0]), code=1).stderr
        assert b"its certificate is not accepted" in refused
        plain = f"127.0.0.1:{proxy.facts['port']}"
        assert b"no TLS" in run("send", "orders", "x", "--producer", plain, "--tls-ca", str(mine[0]), code=1).stderr
        run(
            "context",
            "add",
            "tls",
            "--config",
            penstock_up.facts["config"],
            "--producer",
            address,
            "--tls-ca",
            str(mine[0]),
        )
        run("send", "orders", "by the context", "--context", "tls")
    finally:
        proxy.process.terminate()
        proxy.process.wait()


def certificate(place: Path, name: str) -> tuple[Path, Path]:
    cert, key = place / f"{name}.pem", place / f"{name}.key"
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]  # fmt: skip
    subprocess.run(line, check=True, capture_output=True)
    key.chmod(0o600)
    return cert, key
