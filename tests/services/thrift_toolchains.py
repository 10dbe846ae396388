"""Tool chains of the client languages: found, and built once per test session; otherwise the test is skipped (CI: failed)."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.services import require

CLIENTS = Path(__file__).resolve().parents[2] / "clients"
LANGUAGES = ("python", "php", "go", "cpp", "java", "node", "rust", "csharp")
_GO_OUTSIDE_PATH = Path("/usr/local/go/bin")
_CARGO_OUTSIDE_PATH = Path.home() / ".cargo" / "bin"
_BUILD_DEADLINE_S = 600


def program(language: str, name: str) -> list[str]:
    """The command that runs one of a language's programs (send, pull, demo_producer, demo_consumer); arguments follow it."""
    build(language)
    return [str(CLIENTS / "run"), language, name]


def environment(**more: str) -> dict[str, str]:
    """The environment for `program` and for builds: this Python for the Python programs, and Go found outside PATH."""
    path = os.environ["PATH"]
    for tool, outside in (("go", _GO_OUTSIDE_PATH), ("cargo", _CARGO_OUTSIDE_PATH)):
        if shutil.which(tool) is None:
            path = f"{path}:{outside}"
    return {**os.environ, "PATH": path, "PYTHON": sys.executable, **more}


def build(language: str) -> None:
    """Generate and build a language's programs, or skip the test where the tool chain is missing."""
    for condition, why in _needs(language):
        require(condition, f"clients in {language}: {why}")
    if language != "python":
        make(language)


def can_build(language: str) -> bool:
    """Whether the language's tool chain is here. What is built then is built at once, or fails."""
    if not all(condition for condition, _ in _needs(language)):
        return False
    build(language)
    return True


@functools.cache
def make(*targets: str, directory: Path = CLIENTS) -> None:
    """Raises: AssertionError with the build's output."""
    command = ["make", "--silent", "-C", str(directory), *targets]
    made = subprocess.run(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_DEADLINE_S,
    )
    assert made.returncode == 0, f"{' '.join(command)}:\n{made.stdout}"


@functools.cache
def php_extension() -> list[str]:
    """PHP's options that load the thrift_protocol extension; empty where it is loaded anyway or not installed."""
    directory = subprocess.run(["php", "-r", "echo ini_get('extension_dir');"], capture_output=True, text=True).stdout
    loaded = "thrift_protocol" in subprocess.run(["php", "-m"], capture_output=True, text=True).stdout.split()
    installed = (Path(directory) / "thrift_protocol.so").is_file()
    return ["-dextension=thrift_protocol.so"] if installed and not loaded else []


@functools.cache
def _can_install_dotnet() -> bool:
    """Installs the tool chain of C# for this user, if it is not there."""
    command = [CLIENTS / "csharp" / "toolchain" / "install"]
    return subprocess.run(command, env=environment(), capture_output=True, timeout=_BUILD_DEADLINE_S).returncode == 0


def _needs(language: str) -> list[tuple[object, str]]:
    compiler = (shutil.which("thrift"), "the thrift compiler (Debian: thrift-compiler)")
    return {
        "python": [(True, "")],
        "php": [
            compiler,
            (shutil.which("php"), "PHP (Debian: php-cli)"),
            (Path("/usr/lib/php/Protocol").is_dir() or os.environ.get("PENSTOCK_THRIFT_PHP"), "Debian's php-thrift"),
        ],
        "go": [
            compiler,
            (shutil.which("go") or (_GO_OUTSIDE_PATH / "go").is_file(), "Go (Debian: golang-go)"),
            (Path("/usr/share/gocode/src/github.com/apache/thrift").is_dir(), "Debian's golang-thrift-dev"),
        ],
        "cpp": [
            compiler,
            (shutil.which("g++"), "a C++ compiler (Debian: g++)"),
            (Path("/usr/include/thrift").is_dir(), "Debian's libthrift-dev"),
            (Path("/usr/include/boost").is_dir(), "Debian's libboost-dev, which libthrift-dev's headers need"),
        ],
        "java": [
            compiler,
            (shutil.which("javac"), "a JDK from 17 (Debian: default-jdk-headless)"),
            (shutil.which("mvn"), "Maven (Debian: maven), which fetches Apache Thrift's library"),
        ],
        "node": [
            compiler,
            (shutil.which("node"), "Node (Debian: nodejs)"),
            (shutil.which("npm"), "npm (Debian: npm), which fetches Apache Thrift's library"),
        ],
        "rust": [
            compiler,
            (
                shutil.which("cargo") or (_CARGO_OUTSIDE_PATH / "cargo").is_file(),
                "Rust from 1.74 with cargo (Debian: cargo-web), which fetches Apache Thrift's library",
            ),
            (Path("/usr/include/openssl").is_dir(), "Debian's libssl-dev"),
            (shutil.which("pkg-config"), "pkg-config (Debian: pkgconf)"),
        ],
        "csharp": [
            compiler,
            (_can_install_dotnet(), "what clients/csharp/toolchain/install fetches, on Debian 12 for x86-64"),
        ],
    }[language]
