"""The demo programs of the SDKs, in the languages whose tool chains are installed."""

import glob
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.demo.errors import DemoError

BUILD_S_MAX = 240
PREFERENCE = {
    "producer": ("php", "cpp", "go", "java", "node", "python", "rust", "csharp"),
    "consumer": ("go", "php", "cpp", "java", "node", "python", "rust", "csharp"),
}
# Requirements per language: programs, and patterns that must each match a file.
TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "php": (("make", "php", "thrift"), ("/usr/lib/php/*/TBinaryProtocol*.php",)),
    "go": (("make", "go", "thrift"), ("/usr/share/gocode/src/github.com/apache/thrift/lib/go/thrift",)),
    "cpp": (("make", "c++", "thrift"), ("/usr/include/thrift/Thrift.h", "/usr/include/boost/version.hpp")),
    "java": (("make", "javac", "mvn", "thrift"), ()),
    "node": (("make", "node", "npm", "thrift"), ()),
    "python": ((), ()),
    "rust": (("make", "cc", "cargo", "pkg-config", "thrift"), ("/usr/include/openssl/ssl.h",)),
    "csharp": (("make", "npm", "apt-get", "thrift"), ()),
}
SOURCE_TREE = Path(__file__).parents[2] / "clients"
HOMES = ("/usr/local/go/bin", str(Path.home() / ".cargo" / "bin"))
"""Folders of the installers of Go and Rust."""


@dataclass(frozen=True)
class DemoProgram:
    """A demo program of one language, ready to run."""

    language: str
    command: list[str]


def environment() -> dict[str, str]:
    """This process's environment, with the interpreter that has thriftpy2 and with the folders of installers."""
    return {**os.environ, "PYTHON": sys.executable, "PATH": ":".join((os.environ.get("PATH", ""), *HOMES))}


def missing(language: str) -> list[str]:
    """Missing requirements of the language's client."""
    programs, patterns = TOOLS[language]
    lacking = [name for name in programs if not shutil.which(name, path=environment()["PATH"])]
    lacking += [pattern for pattern in patterns if not glob.glob(pattern)]
    if language != "python" and not (SOURCE_TREE / "run").exists():
        lacking.append("Penstock's source tree")
    return lacking


def build(language: str) -> str:
    """Build the language's programs where needed, and say so; return the error, or ""."""
    if language == "python":
        return ""
    command = ["make", "--quiet", "-C", str(SOURCE_TREE), "go-demo" if language == "go" else language]
    if subprocess.run([*command, "--question"], capture_output=True, env=environment()).returncode:
        print(f"demo: building the {language} client", flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S_MAX, env=environment())
    except subprocess.TimeoutExpired:
        return f"its build took more than {BUILD_S_MAX} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["its build failed"])[-1]


def choose(role: str, asked: str) -> tuple[DemoProgram, list[str]]:
    """The program for a role ("producer" or "consumer"), and notes on the languages that were skipped.

    Raises:
        DemoError: a language given by name does not work on this machine.
    """
    notes: list[str] = []
    for language in PREFERENCE[role] if asked == "auto" else (asked,):
        lacking = missing(language)
        fault = f"missing: {', '.join(lacking)}" if lacking else build(language)
        if not fault:
            return program(language, role), notes
        notes.append(f"no {language} {role} ({fault})")
    raise DemoError("; ".join(notes))


def program(language: str, role: str) -> DemoProgram:
    """The program in the source tree; an installed Penstock without the tree has the Python programs."""
    if (SOURCE_TREE / "run").exists():
        return DemoProgram(language, [str(SOURCE_TREE / "run"), language, f"demo_{role}"])
    examples = next(iter(importlib.import_module("penstock_client_examples").__path__))
    return DemoProgram(language, [sys.executable, str(Path(examples) / f"demo_{role}.py")])
