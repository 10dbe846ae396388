"""Stock generated code with no SDK of ours: every language over framed and over buffered transport."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.clients.access import Access
from tests.services import require, thrift_toolchains

STUBS = Path(__file__).parent / "stubs"
DEADLINE_S = 60
KINDS = ("python", "php with the extension", "php plain", "go", "cpp", "java", "node")


def command(kind: str) -> list[str]:
    language = kind.split()[0]
    thrift_toolchains.build(language)
    if kind == "python":
        return [sys.executable, str(STUBS / "stub.py")]
    if kind == "node":
        return ["node", str(STUBS / "stub.js")]
    if kind == "php plain":
        return ["php", str(STUBS / "stub.php")]
    if language == "php":
        extension = thrift_toolchains.php_extension()
        require(extension, "php-thrift's extension thrift_protocol")
        return ["php", *extension, str(STUBS / "stub.php")]
    thrift_toolchains.make(language, directory=STUBS)
    if kind == "java":
        libraries = thrift_toolchains.CLIENTS / "java" / "build"
        classes = f"{libraries / 'penstock-client.jar'}:{libraries / 'lib'}/*:{STUBS / 'build'}"
        return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classes, "Stub"]
    return [str(STUBS / "build" / f"stub_{language}")]


@pytest.mark.parametrize("transport", ["framed", "buffered"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_bare_generated_stub_sends_pulls_and_acknowledges(access: Access, kind: str, transport: str):
    topic = access.topic(f"stub.{kind.replace(' ', '-')}.{transport}")
    arguments = (transport, access.producer, access.consumer, access.app, access.key_id, topic, f"{topic}.readers")
    done = subprocess.run(
        [*command(kind), *arguments],
        env=thrift_toolchains.environment(PENSTOCK_SECRET=access.secret),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok")
    if kind.startswith("php"):
        assert done.stdout.strip() == ("ok plain" if kind == "php plain" else "ok with the extension")
