"""Applications' secrets at real processes: derived from root keys, so that no reader of the configuration learns one.

Also: root keys that change under load, that are wrong or missing, and secrets that are stored in clear.
"""

import json
import subprocess
import sys
import threading
import zlib
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from common.config import buckets, open_store
from common.config.root_keys import load_root_keys
from common.config.store import KINDS
from common.contract import Code
from common.secret_file import KEY_BYTES, ensure_key
from penstock.__main__ import cli
from tests.e2e.pull_parts import Process
from tests.e2e.running import Application
from tests.fault.stock_clients import Puller, Sender, knows
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until

CLEAR = Application("before", "k-before", "secret-of-before-0123456789")
TURN_S_MAX = 15.0


class SecretsSite:
    """An engine without root keys, and both proxies with those of `key`, on one configuration."""

    def __init__(self, folder: Path, config: str) -> None:
        self.folder, self.config, self.processes = folder, config, []
        self.cluster_key, self.key = ensure_key(folder / "cluster.key"), ensure_key(folder / "secrets.key")
        with closing(open_store(config)) as store:
            store.put("topic", "orders", {"queues": 2, "durability": "memory"}, 0)
            keys = [{"key_id": CLEAR.key_id, "secret": CLEAR.secret, "created_at_ms": 1}]
            store.put("application", CLEAR.app, {"keys": keys, "grants": [["send", "*"], ["pull", "*"]]}, 0)

    def __enter__(self) -> "SecretsSite":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for each in reversed(self.processes):
            each.kill()

    def _start(self) -> None:
        self.engine = self.start("engine", "--data", self.folder / "engine")
        self.producer = self.proxy("producer_proxy", "--secrets-key", self.key)
        self.consumer = self.proxy("consumer_proxy", "--secrets-key", self.key)

    def start(self, module: str, *options: object) -> Process:
        line = ["--listen", "127.0.0.1:0", "--config", self.config, "--cluster-key", self.cluster_key, *options]
        self.processes.append(Process(module, *line))
        return self.processes[-1]

    def proxy(self, module: str, *options: object) -> Process:
        number = len(self.processes)
        options = ("--snapshot", self.folder / f"{number}.snapshot", *options)
        return self.start(module, "--engine", f"127.0.0.1:{self.engine.port}", *options)

    def command(self, *arguments: object) -> dict:
        made = CliRunner().invoke(cli, [*map(str, arguments), "--config", self.config, "-o", "json"])
        assert made.exit_code == 0, made.output
        return json.loads(made.stdout)

    def application(self, name: str, verb: str = "create") -> Application:
        grants = ("--send", "*", "--pull", "*") if verb == "create" else ()
        made = self.command("app", verb, name, *grants, "--secrets-key", self.key)
        return Application(made["app"], made["key_id"], made["secret"])

    def put(self, *keys: bytes) -> None:
        """Replace the file of root keys."""
        fresh = ensure_key(self.folder / "fresh")
        fresh.write_bytes(b"".join(keys))
        fresh.replace(self.key)

    def code_of(self, who: Application, producer: Process | None = None) -> int:
        with Sender(("127.0.0.1", (producer or self.producer).port), who) as sender:
            return sender.one("orders", b"x").code

    def pulls(self, who: Application) -> int:
        with Puller(("127.0.0.1", self.consumer.port), who) as puller:
            return puller.pull("readers", "orders").code

    def note(self, process: Process) -> str:
        """What /readyz says of the root keys; empty: nothing."""
        status, page = process.page("/readyz")
        assert status == 200, "the proxy serves the other applications"
        return json.loads(page)["notes"].get("secrets", "")

    def has_root(self, process: Process, root: str) -> bool:
        return f'penstock_root_keys_loaded{{root="{root}"}} 1.0' in process.page("/metrics")[1]

    def texts(self) -> str:
        """All entries of the store, the audit journal with them."""
        with closing(open_store(self.config)) as store:
            found = [each for kind in KINDS for each in store.found_buckets(kind).values()]
        return "".join(buckets.unpack(each, "bucket").decode() for each in found)


def unpacked(content: bytes) -> bytes:
    """A file's bytes, and what is packed in them at any place."""
    found, at = [content], content.find(b"x\x9c")
    while at >= 0:
        inflate = zlib.decompressobj()
        try:
            found.append(inflate.decompress(content[at:]))
        except zlib.error:
            pass
        at = content.find(b"x\x9c", at + 1)
    return b"\n".join(found)


@pytest.fixture(scope="module", params=["file", "zookeeper"])
def site(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    with ExitStack() as stack:
        url = f"file://{folder}/config"
        if request.param == "zookeeper":
            url = f"zookeeper://{stack.enter_context(ZooKeeper(folder / 'zookeeper')).address}/secrets"
        yield stack.enter_context(SecretsSite(folder, url))


def test_a_reader_of_the_whole_store_and_of_all_files_finds_no_secret(site):
    shop = site.application("shop")
    second = site.application("shop", "rotate")
    for who in (shop, second, CLEAR):
        until(lambda who=who: site.code_of(who) == Code.OK, "its sends are accepted")
        until(lambda who=who: site.pulls(who) == Code.OK, "its pulls are accepted")
    texts = site.texts()
    assert CLEAR.secret in texts and shop.key_id in texts, "the search finds what is there"
    root = site.key.read_bytes()
    for secret in (shop.secret, second.secret, root.hex()):
        assert secret not in texts
    until(lambda: (site.folder / "1.snapshot").exists(), "a snapshot")
    found = {
        path: unpacked(path.read_bytes()) for path in site.folder.rglob("*") if path.is_file() and path != site.key
    }
    assert any(CLEAR.secret.encode() in content for content in found.values())
    for secret in (shop.secret.encode(), second.secret.encode(), root):
        assert [path for path, content in found.items() if secret in content] == []


class Load:
    """An application that sends and pulls until it is left; every answer's code."""

    def __init__(self, site: SecretsSite, who: Application) -> None:
        self._site, self._who, self._stop = site, who, threading.Event()
        self.codes: list[int] = []
        self._threads = [threading.Thread(target=each) for each in (self._send, self._pull)]

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(30)

    def _send(self) -> None:
        with Sender(("127.0.0.1", self._site.producer.port), self._who) as sender:
            while not self._stop.is_set():
                sender.renew(0.2)  # most calls find no verdict in the cache
                self.codes.append(sender.one("orders", b"x").code)

    def _pull(self) -> None:
        with Puller(("127.0.0.1", self._site.consumer.port), self._who) as puller:
            while not self._stop.is_set():
                puller.renew(0.2)
                self.codes.append(puller.pull(f"of-{self._who.app}", "orders", wait_ms=500).code)


def test_a_root_key_is_turned_under_load_and_no_call_of_an_application_that_has_not_changed_is_refused(site):
    old = site.key.read_bytes()
    new = bytes(reversed(range(200, 200 + KEY_BYTES)))
    shop = site.application("turning")
    until(lambda: site.code_of(shop) == Code.OK and site.pulls(shop) == Code.OK, "the application is known")
    proxies = (site.producer, site.consumer)
    with Load(site, CLEAR) as clear:
        with Load(site, shop) as derived:
            site.put(old, new)
            root = load_root_keys(site.key).ids[1]
            until(lambda: all(site.has_root(each, root) for each in proxies), "both proxies have it", TURN_S_MAX)
            site.put(new, old)
            turned = site.application("turned")
            assert {each["root"] for each in site.command("app", "show", "turned")["keys"]} == {root}
            until(lambda: site.code_of(turned) == Code.OK and site.pulls(turned) == Code.OK, "both proxies", TURN_S_MAX)
            until(lambda: len(derived.codes) > 50, "calls after the turn")
        moved = site.application("turning", "rotate")
        until(lambda: site.code_of(moved) == Code.OK and site.pulls(moved) == Code.OK, "the new key")
        site.put(new)
        until(
            lambda: {site.code_of(shop), site.pulls(shop)} == {Code.UNAUTHENTICATED},
            "the old root key is gone",
            TURN_S_MAX,
        )
        assert {site.code_of(who) for who in (moved, turned)} == {Code.OK}
        assert all("keys are refused, they need root key" in site.note(each) for each in proxies)
        site.command("app", "revoke", "turning", shop.key_id)
    assert set(derived.codes) == {Code.OK} and set(clear.codes) == {Code.OK}
    site.put(new, old)
    until(lambda: all(site.note(each) == "" for each in proxies), "every root key is there", TURN_S_MAX)


def test_a_proxy_with_a_wrong_file_or_none_refuses_derived_keys_only_and_says_so(site):
    shop = site.application("told")
    until(lambda: site.code_of(shop) == Code.OK, "the application is known")
    bare, wrong = (
        site.proxy("producer_proxy"),
        site.proxy("producer_proxy", "--secrets-key", ensure_key(site.folder / "wrong")),
    )
    for process, reason in ((bare, "--secrets-key is not given"), (wrong, "does not have it")):
        assert site.code_of(shop, process) == Code.UNAUTHENTICATED and site.code_of(CLEAR, process) == Code.OK
        said = site.note(process)
        assert "keys are refused, they need root key r-" in said and reason in said and shop.secret not in said


@pytest.mark.parametrize(("name", "rule"), [("none", "no such file"), ("short", "5 bytes"), ("open", "chmod 600")])
def test_a_proxy_does_not_start_with_a_file_that_it_cannot_use(site, tmp_path, name, rule):
    path = tmp_path / name
    if name != "none":
        ensure_key(path).write_bytes(b"short" if name == "short" else bytes(range(100, 132)))
        path.chmod(0o644 if name == "open" else 0o600)
    for module in ("producer_proxy", "consumer_proxy"):
        line = [sys.executable, "-m", module, "--listen", "127.0.0.1:0", "--config", site.config]
        line += ["--cluster-key", str(site.cluster_key), "--secrets-key", str(path)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0 and f"--secrets-key {path}: " in done.stderr and rule in done.stderr
        assert "Traceback" not in done.stderr


def test_up_makes_root_keys_once_uses_them_and_keeps_the_keys_of_before(penstock_up):
    key = penstock_up.data / "secrets.key"
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, KEY_BYTES)
    penstock_up.run("topic", "create", "orders", "--queues", "1")
    with closing(open_store(penstock_up.facts["config"])) as store:
        keys = [{"key_id": CLEAR.key_id, "secret": CLEAR.secret, "created_at_ms": 1}]
        store.put("application", CLEAR.app, {"keys": keys, "grants": [["send", "*"]]}, 0)
    shop = penstock_up.application("shop", send=["*"])
    for who in (CLEAR, shop):
        with Sender(penstock_up.producer, who) as sender:
            knows(sender, "orders")
    config = b"".join(
        unpacked(path.read_bytes()) for path in (penstock_up.data / "config").rglob("*") if path.is_file()
    )
    assert CLEAR.secret.encode() in config and shop.secret.encode() not in config
    content = key.read_bytes()
    penstock_up.stop()
    penstock_up.start()
    assert key.read_bytes() == content
    with Sender(penstock_up.producer, shop) as sender:
        assert until(lambda: sender.one("orders", b"x").code == Code.OK, "the key of before the restart")
