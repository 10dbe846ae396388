"""Each client installs from its folder by its language's own tool, elsewhere, and the console's example works with it.

Slow: the tools build all anew, and fetch Apache Thrift's libraries from their registries. Composer takes Debian's,
NuGet what the tool chain of C# has compiled.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from console.client_code.examples import LANGUAGES, ClientPlace, example
from tests.services import require, thrift_toolchains
from tests.services.fake_penstock import FakePenstock

CLIENTS = thrift_toolchains.CLIENTS
THRIFT_OF_PHP = Path("/usr/lib/php")

RUST = """
use penstock_client::{message, Config, Consumer, Error, Producer, Subscription};

fn main() -> Result<(), Error> {
    let secret = std::env::var("PENSTOCK_SECRET").unwrap();
    let config = |endpoints| Config::new(endpoints, "@APP@", "@KEY_ID@", &secret);
    let stored = Producer::new(config("@PRODUCERS@"))?.send(message("@TOPIC@", "hello from Rust"))?;
    println!("sent {}", stored.id);
    let subscription = Subscription { group: "@GROUP@".into(), topics: vec!["@TOPIC@".into()], invisible: None };
    let consumer = Consumer::new(config("@CONSUMERS@"), subscription)?;
    for each in &consumer.pull(10, std::time::Duration::from_secs(5))? {
        println!("pulled {}", String::from_utf8_lossy(each.message.body.as_deref().unwrap_or_default()));
        consumer.done(each);
    }
    consumer.close()
}
"""
CSHARP = """
using System;
using System.Text;
using System.Threading.Tasks;
using Penstock;
using Penstock.Client;

internal static class PenstockExample
{
    private static async Task Main()
    {
        string secret = Environment.GetEnvironmentVariable("PENSTOCK_SECRET");
        await using var producer = new PenstockProducer("@PRODUCERS@", "@APP@", "@KEY_ID@", secret);
        var hello = new Message { Topic = "@TOPIC@", Body = Encoding.UTF8.GetBytes("hello from C#") };
        Console.WriteLine($"sent {(await producer.SendAsync(hello)).Id}");
        await using var consumer =
            new PenstockConsumer("@CONSUMERS@", "@APP@", "@KEY_ID@", secret, "@GROUP@", new[] { "@TOPIC@" });
        foreach (Delivery each in await consumer.PullAsync(10, TimeSpan.FromSeconds(5)))
        {
            Console.WriteLine($"pulled {Encoding.UTF8.GetString(each.Message.Body)}");
            consumer.Done(each);
        }
    }
}
"""
CSHARP_PROJECT = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><OutputType>Exe</OutputType>
<TargetFramework>netcoreapp3.1</TargetFramework><UseAppHost>false</UseAppHost>
<EnableDefaultItems>false</EnableDefaultItems></PropertyGroup>
<ItemGroup><Compile Include="Example.cs" /><PackageReference Include="Penstock.Client" Version="0.1.0" /></ItemGroup></Project>
"""
OTHERS = {"rust": ("Rust", "example.rs", RUST), "csharp": ("C#", "Example.cs", CSHARP)}
"""Of languages that the console shows no program of: title, file and program."""
TYPED = """
from penstock_client import Delivery, Message, Metrics, Options, Producer, Result, Verdict


def handle(delivery: Delivery) -> int:
    return Verdict.DONE


def send(producer: Producer) -> Result:
    return producer.send(Message(topic="t", body=b"x"))


options: Options = Options(deadline_ms=1, metrics=Metrics())
wrong: str = options.deadline_ms
"""


def run(folder: Path, *command: object, **variables: str) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=thrift_toolchains.environment(**variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def python(folder: Path, program: Path) -> list[object]:
    run(folder, sys.executable, "-m", "venv", "env")
    run(folder, "env/bin/pip", "install", "--quiet", CLIENTS / "python")
    (folder / "typed.py").write_text(TYPED)
    typed = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", "env/bin/python", "--cache-dir", "cache", "typed.py"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    (fault,) = [line for line in typed.stdout.splitlines() if "error" in line and "Found" not in line]
    assert "typed.py:14" in fault and '"int"' in fault, typed.stdout  # the package's types are seen
    return [folder / "env/bin/python", program]


def php(folder: Path, program: Path) -> list[object]:
    require(shutil.which("composer"), "Composer (Debian: composer)")
    thrift = folder / "thrift"
    thrift.mkdir()
    for each in THRIFT_OF_PHP.iterdir():
        if each.name[0].isupper():
            (thrift / each.name).symlink_to(each)
    named = {"name": "apache/thrift", "version": "0.17.0", "autoload": {"psr-4": {"Thrift\\": ""}}}
    (thrift / "composer.json").write_text(json.dumps(named))
    paths = [{"type": "path", "url": str(each)} for each in (thrift, CLIENTS / "php")]
    required = {"require": {"penstock/client": "*@dev"}, "repositories": [*paths, {"packagist": False}]}
    (folder / "composer.json").write_text(json.dumps(required))
    run(folder, "composer", "install", "--no-interaction", COMPOSER_ALLOW_SUPERUSER="1")
    program.write_text(program.read_text().replace("clients/php/autoload.php", "vendor/autoload.php"))
    return ["php", program]


def go(folder: Path, program: Path) -> list[object]:
    """In a copy without generated code, as `go generate` makes it."""
    for each in (CLIENTS / "go", CLIENTS.parent / "thrift"):
        shutil.copytree(
            each,
            folder / each.relative_to(CLIENTS.parent),
            symlinks=True,
            ignore=shutil.ignore_patterns("gen", "build"),
        )
    modules = {"GO111MODULE": "on", "GOFLAGS": "-mod=mod", "GOWORK": "off"}
    run(folder / "clients" / "go", "go", "generate", ".", **modules)
    run(folder, "go", "mod", "init", "example", **modules)
    run(folder, "go", "mod", "edit", "-replace", "penstock.io/client=./clients/go", **modules)
    run(folder, "go", "mod", "edit", "-require", "penstock.io/client@v0.0.0", **modules)
    run(folder, "go", "build", "-o", "example", program.name, **modules)
    return [folder / "example"]


def cpp(folder: Path, program: Path) -> list[object]:
    run(folder, "cmake", "-S", CLIENTS / "cpp", "-B", "build")
    run(folder, "cmake", "--build", "build", "-j", str(os.cpu_count()))
    run(folder, "cmake", "--install", "build", "--prefix", folder / "installed")
    (found,) = (folder / "installed").rglob("*.pc")
    where = {"PKG_CONFIG_PATH": str(found.parent)}
    flags = run(folder, "pkg-config", "--cflags", "--libs", "penstock-client", **where).split()
    run(folder, "g++", "-std=c++17", program, "-o", "example", *flags)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(example CXX)\nfind_package(penstock-client 0.1 REQUIRED)\n"
        f"add_executable(by-cmake {program.name})\ntarget_link_libraries(by-cmake penstock::client)\n"
    )
    run(folder, "cmake", "-S", ".", "-B", "by-cmake", f"-DCMAKE_PREFIX_PATH={folder / 'installed'}")
    run(folder, "cmake", "--build", "by-cmake")
    return [folder / "example"]


def java(folder: Path, program: Path) -> list[object]:
    run(CLIENTS / "java", "mvn", "--quiet", "--batch-mode", "install")
    place = folder / "src/main/java"
    place.mkdir(parents=True)
    shutil.copy(program, place)
    (folder / "pom.xml").write_text(
        """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>example</groupId><artifactId>example</artifactId><version>1</version>
<properties><maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target></properties>
<dependencies><dependency><groupId>io.penstock</groupId><artifactId>penstock-client</artifactId>
<version>0.1.0</version></dependency></dependencies></project>"""
    )
    run(folder, "mvn", "--quiet", "--batch-mode", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    return ["java", "-cp", f"{folder / 'target/classes'}:{folder / 'lib'}/*", "PenstockExample"]


def node(folder: Path, program: Path) -> list[object]:
    packed = run(CLIENTS / "node", "npm", "pack", "--silent", "--pack-destination", folder).split()[-1]
    run(folder, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error", f"./{packed}")
    return ["node", program]


def rust(folder: Path, program: Path) -> list[object]:
    run(folder, "cargo", "new", "--quiet", "--vcs", "none", "example")
    run(folder / "example", "cargo", "add", "--quiet", "--path", CLIENTS / "rust", "penstock-client")
    shutil.copy(program, folder / "example" / "src" / "main.rs")
    run(folder / "example", "cargo", "build", "--quiet")
    return [folder / "example" / "target" / "debug" / "example"]


def csharp(folder: Path, program: Path) -> list[object]:
    """From a folder of packages: NuGet's own is another machine's, so Apache Thrift's library is packed from the tool chain."""
    tools = (CLIENTS / "csharp" / "build" / "toolchain").resolve()
    dotnet = [CLIENTS / "csharp" / "toolchain" / "dotnet", tools]
    logging = "Microsoft.Extensions.Logging.Abstractions"
    nuget(folder, "ApacheThrift", "0.17.0", tools / "Thrift.dll", needs=logging)
    nuget(folder, logging, "3.1.2", tools / f"dotnet/shared/Microsoft.AspNetCore.App/3.1.2/{logging}.dll")
    source = f'<clear /><add key="here" value="{folder / "packages"}" />'
    (folder / "nuget.config").write_text(f"<configuration><packageSources>{source}</packageSources></configuration>")
    for each in (CLIENTS / "csharp", CLIENTS.parent / "thrift"):
        shutil.copytree(each, folder / each.relative_to(CLIENTS.parent), ignore=shutil.ignore_patterns("gen", "build"))
    # Nothing is written to the user's folders, and no server of the compiler stays.
    own = {"HOME": str(folder), "TMPDIR": str(folder), "MSBUILDDISABLENODEREUSE": "1", "UseSharedCompilation": "false"}
    run(folder, *dotnet, "pack", "--nologo", "--output", "packages", "clients/csharp", **own)
    (folder / "example.csproj").write_text(CSHARP_PROJECT)
    run(folder, *dotnet, "build", "--nologo", "--output", "built", "example.csproj", **own)
    return [*dotnet, folder / "built" / "example.dll"]


def nuget(folder: Path, name: str, version: str, library: Path, needs: str = "") -> None:
    """A package of one library, as NuGet has it."""
    needed = f'<dependency id="{needs}" version="3.1.2" />' if needs else ""
    (folder / "packages").mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "packages" / f"{name}.{version}.nupkg", "w") as package:
        package.writestr(
            f"{name}.nuspec",
            f"""<package><metadata><id>{name}</id><version>{version}</version><authors>a</authors>
            <description>d</description><dependencies><group targetFramework=".NETStandard2.1">{needed}</group></dependencies>
            </metadata></package>""",
        )
        package.write(library, f"lib/netstandard2.1/{library.name}")


INSTALLS: dict[str, Callable[[Path, Path], list[object]]] = {
    "python": python, "php": php, "go": go, "cpp": cpp, "java": java, "node": node, "rust": rust,
    "csharp": csharp,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("language", INSTALLS)
def test_the_package_installs_by_the_language_s_own_tool_and_works(fake: FakePenstock, language: str, tmp_path: Path):
    thrift_toolchains.build(language)
    place = ClientPlace(fake.producer_endpoints, fake.consumer_endpoints, fake.app, fake.key_id, "t", "g")
    if language in LANGUAGES:
        title, name, text = LANGUAGES[language].title, LANGUAGES[language].file, example(language, place)
    else:
        title, name, text = OTHERS[language]
        for field, value in place._asdict().items():
            text = text.replace(f"@{field.upper()}@", value)
    program = tmp_path / name
    program.write_text(text)
    command = INSTALLS[language](tmp_path, program)
    lines = run(tmp_path, *command, PENSTOCK_SECRET=fake.secret).splitlines()
    assert any(line.startswith("sent ") for line in lines)
    assert lines[-1] == f"pulled hello from {title}"
