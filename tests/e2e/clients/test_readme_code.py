"""The programs' lines on the clients' pages: each language's own compiler takes them, with what a reader has around them.

They run nowhere: their proxies are `proxy1` and `proxy2`. The programs that the console shows, which do the same, run in
test_console_code.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pages import blocks
from tests.services import thrift_toolchains

pytestmark = pytest.mark.slow

CLIENTS = thrift_toolchains.CLIENTS

GO = """package main

import (
	"context"
	"errors"
	"time"

	penstock "penstock.io/client"
)

func handle(context.Context, *penstock.Message) error { return nil }

func main() {
	var keyID, secret, key string
	var body []byte
	var messages []*penstock.Message
	ctx := context.Background()
%s
	_, _, _, _ = results, answer, err, result
	{
%s
		_, _ = result, err
	}
}
"""
CPP = """%s
#include <future>
#include <string>
#include <vector>
bool Handle(const penstock::Message&);
void Example(std::string key_id, std::string secret, std::string body, std::vector<penstock::Message> messages,
             penstock::Message question) {
%s
}
"""
JAVA = """import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
%s
class Readme {
  static void handle(Message message) {}
  void first(String keyId, String secret, byte[] body, List<Message> messages) throws Exception {
%s
  }

  void second(PenstockProducer producer, String key, byte[] body) throws Exception {
%s
  }
}
"""
NODE = "(async (keyId, secret, messages, orders, handle) => {\n%s\n});\n"
RUST = """use penstock_client::{Batching, BatchingProducer, Message};
use std::sync::Arc;
use std::time::Duration;
%s
fn handle(_: &Message) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
#[allow(unused)]
fn example(key_id: String, secret: String, body: &[u8], messages: Vec<Message>) -> Result<(), penstock_client::Error> {
%s
    Ok(())
}
fn main() {}
"""
CSHARP = """using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
%s
internal static class Readme
{
    private static Task HandleAsync(Message message) => Task.CompletedTask;

    private static async Task First(
        string keyId, string secret, byte[] body, List<Message> messages, CancellationToken stoppingToken)
    {
%s
    }

    private static async Task Second(PenstockProducer producer, string key, byte[] body, List<Message> messages)
    {
%s
    }
}
"""


def checked(folder: Path, *command: object, **variables: str) -> None:
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=thrift_toolchains.environment(**variables), capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def parted(text: str, *beginnings: str) -> tuple[str, str]:
    """The lines that stand at the head of a file, and the others."""
    head = [line for line in text.splitlines() if line.startswith(beginnings)]
    return "\n".join(head), "\n".join(line for line in text.splitlines() if line not in head)


def python(folder: Path, *texts: str) -> None:
    defined = (
        "from typing import Any\nkey_id = secret = ''\nmessages: list[Any] = []\norders: list[tuple[str, bytes]] = []\n"
    )
    text = "".join(texts).replace(
        "from penstock_client import ", "from penstock_client import Batching, BatchingProducer, ", 1
    )
    (folder / "readme.py").write_text(f"{defined}def handle(message: Any) -> bool:\n    return True\n{text}")
    checked(
        folder,
        sys.executable,
        "-m",
        "mypy",
        "--follow-imports=silent",
        "--cache-dir",
        "cache",
        "readme.py",
        MYPYPATH=str(CLIENTS / "python"),
    )


def php(folder: Path, *texts: str) -> None:
    (folder / "readme.php").write_text("\n".join(["<?php", *texts]))
    checked(folder, "php", "-l", "readme.php")


def go(folder: Path, *texts: str) -> None:
    (folder / "main.go").write_text(GO % texts)
    modules = {"GO111MODULE": "on", "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    checked(folder, "go", "mod", "init", "example", **modules)
    checked(folder, "go", "mod", "edit", "-replace", f"penstock.io/client={CLIENTS / 'go'}", **modules)
    checked(folder, "go", "mod", "edit", "-require", "penstock.io/client@v0.0.0", **modules)
    checked(folder, "go", "vet", ".", **modules)


def cpp(folder: Path, *texts: str) -> None:
    head, body = parted("".join(texts), "#include", "namespace")
    (folder / "readme.cc").write_text(CPP % (head, body))
    places = [f"-I{CLIENTS / 'cpp' / each}" for each in ("include", "gen")]
    checked(folder, "g++", "-std=c++17", "-fsyntax-only", *places, "readme.cc")


def java(folder: Path, *texts: str) -> None:
    head, first = parted(texts[0], "import")
    (folder / "Readme.java").write_text(JAVA % (head, first, texts[1]))
    built = CLIENTS / "java" / "build"
    checked(folder, "javac", "-proc:none", "-cp", f"{built / 'penstock-client.jar'}:{built / 'lib'}/*", "Readme.java")


def node(folder: Path, *texts: str) -> None:
    (folder / "readme.js").write_text(NODE % "".join(texts))
    checked(folder, "node", "--check", "readme.js")


def rust(folder: Path, *texts: str) -> None:
    head, body = parted("".join(texts), "use")
    checked(folder, "cargo", "new", "--quiet", "--vcs", "none", "readme")
    checked(folder / "readme", "cargo", "add", "--quiet", "--path", CLIENTS / "rust", "penstock-client")
    (folder / "readme" / "src" / "main.rs").write_text(RUST % (head, body))
    checked(folder / "readme", "cargo", "check", "--quiet")


def csharp(folder: Path, *texts: str) -> None:
    head, first = parted(texts[0], "using Penstock")
    (folder / "Readme.cs").write_text(CSHARP % (head, first, texts[1]))
    built = CLIENTS / "csharp" / "build"
    libraries = [f"-reference:{built / name}" for name in ("Penstock.Client.dll", "Thrift.dll")]
    compiler = [CLIENTS / "csharp" / "toolchain" / "csc", built / "toolchain", "netcore"]
    checked(folder, *compiler, "-target:library", "-out:readme.dll", *libraries, "Readme.cs")


CHECKS: dict[str, Callable[..., None]] = {
    "python": python, "php": php, "go": go, "cpp": cpp, "java": java, "node": node, "rust": rust,
    "csharp": csharp,
}  # fmt: skip


@pytest.mark.parametrize("language", CHECKS)
def test_the_lines_of_the_page_compile(language, tmp_path):
    thrift_toolchains.build(language)
    found = [block for block in blocks(f"clients/{language}/README.md") if block.word == "fragment"]
    assert len(found) >= 2
    CHECKS[language](tmp_path, *(block.text for block in found))
