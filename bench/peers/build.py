"""Builds of peers and drivers, fetched by Maven and Go into a cache outside the tree.

Each build gets a folder named by a digest of its inputs, so a changed pin or source makes a new one. It is made
under another name and renamed when it is complete: an interrupted build is never taken for a finished one.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.errors import InstanceError

ROOT = Path(__file__).parents[2]
DRIVERS = ROOT / "bench" / "drivers"
JAVA_DRIVER = "io.penstock.bench.Main"
STEP_TIMEOUT_S = 900


def cache() -> Path:
    """`$XDG_CACHE_HOME/penstock-bench`, or the same below ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-bench"


def broker_classpath(name: str) -> str:
    """The class path of a Java peer: everything that bench/peers/NAME.pom.xml names, and what that needs."""
    pom = ROOT / "bench" / "peers" / f"{name}.pom.xml"
    return f"{_made(name, [pom], lambda into: _fetch_jars(pom, into))}/*"


def java_driver_classpath() -> str:
    """Our Java driver, compiled against its libraries and against the contract's classes for the thrift compiler that is here."""
    sources = [*sorted((DRIVERS / "java").rglob("*.java")), *sorted((ROOT / "thrift").glob("*.thrift"))]
    version = _thrift_version()
    pom = DRIVERS / "java" / "pom.xml"
    jars = _made("driver-jars", [pom], lambda into: _fetch_jars(pom, into, f"-Dthrift.version={version}"), version)
    classes = _made("driver-java", [pom, *sources], lambda into: _compile_java(jars, into), version)
    return f"{classes}:{jars}/*"


def go_program(name: str, package: str) -> Path:
    """A program of bench/drivers/go: our driver, or the server that its go.mod pins."""
    folder = DRIVERS / "go"

    def build(into: Path) -> None:
        run_tool(["go", "build", "-buildvcs=false", "-o", str(into / name), package], folder)

    sources = [*folder.glob("go.*")] if package != "." else [*folder.glob("go.*"), *folder.glob("*.go")]
    return _made(name, sorted(set(sources)), build) / name


def _made(name: str, sources: Iterable[Path], make: Callable[[Path], None], *more: str) -> Path:
    digest = hashlib.sha256("\0".join(more).encode())
    for path in sources:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    folder = cache() / f"{name}-{digest.hexdigest()[:12]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{name}-", suffix=".part", dir=folder.parent))
    try:
        make(aside)
        aside.rename(folder)
    except OSError:
        if not folder.exists():  # else another run made the same one meanwhile
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _fetch_jars(pom: Path, into: Path, *properties: str) -> None:
    line = ["mvn", "-B", "-q", "-f", str(pom), f"-Dmaven.repo.local={cache() / 'maven'}", *properties]
    run_tool([*line, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"], ROOT)


def _compile_java(jars: Path, into: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-gen-") as generated:
        # The annotation that it would add has left the JDK.
        options = ["--gen", "java:generated_annotations=suppress", "-out", generated]
        for name in ("message", "producer"):
            run_tool(["thrift", *options, f"thrift/{name}.thrift"], ROOT)
        sources = [*(DRIVERS / "java").rglob("*.java"), *Path(generated).rglob("*.java")]
        run_tool(["javac", "-nowarn", "-d", str(into), "-cp", f"{jars}/*", *map(str, sources)], ROOT)


def _thrift_version() -> str:
    said = run_tool(["thrift", "--version"], ROOT)
    found = re.search(r"\d+\.\d+\.\d+", said)
    if found is None:
        raise InstanceError(f"thrift --version says {said.strip()!r}, which has no version in it")
    return found[0]


def run_tool(line: list[str], folder: Path) -> str:
    """Run a tool to its end in `folder` and return what it printed.

    Raises:
        InstanceError: it is not installed, failed, or took too long.
    """
    try:
        done = subprocess.run(
            line, cwd=folder, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as fault:
        raise InstanceError(f"{line[0]} is not installed; bench/peers/README.md says what the peers need") from fault
    except subprocess.TimeoutExpired as fault:
        raise InstanceError(f"{line[0]} did not end within {STEP_TIMEOUT_S} s") from fault
    if done.returncode:
        raise InstanceError(
            f"{' '.join(line[:2])} ended with code {done.returncode}: {_tail(done.stdout + done.stderr)}"
        )
    return done.stdout


def _tail(text: str) -> str:
    return " / ".join([line.strip() for line in text.splitlines() if line.strip()][-5:])[-1000:]
