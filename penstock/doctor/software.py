"""Python, compilers, native modules, tool chains of other languages."""

import importlib
import os
import shutil
import sys
import time
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from common.net.validity import NotACertificate, validity_of
from penstock.demo.programs import TOOLS, missing
from penstock.doctor.finding import DoctorFinding

PACKAGES = ("common", "engine", "kafka_bridge", "producer_proxy", "consumer_proxy", "bench")
LIBRARIES = ("click", "gevent", "google_crc32c", "kazoo", "prometheus_client", "rich", "rocksdict", "thriftpy2")
OPTIONAL_PROGRAMS = {
    "redis-server": "a fallback buffer on this machine",
    "java": "a ZooKeeper on this machine, and the tests of the ZooKeeper store",
    "strace": "the fault tests that fail single system calls",
}


def python() -> DoctorFinding:
    return DoctorFinding(
        "Python", "ok", ".".join(map(str, sys.version_info[:3]))
    )  # an older one cannot import this module


def libraries() -> DoctorFinding:
    lacking = [name for name in LIBRARIES if find_spec(name) is None]
    if not lacking:
        return DoctorFinding("libraries", "ok", f"all {len(LIBRARIES)} are installed")
    return DoctorFinding(
        "libraries", "missing", f"not installed: {', '.join(lacking)}", "run `pip install penstock`, or `make run`"
    )


def compiler() -> DoctorFinding:
    found = next((name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and shutil.which(name)), None)
    if found:
        return DoctorFinding("C compiler", "ok", found)
    advice = "optional, about ten times as fast: install gcc and python3-dev, then run `make native`"
    return DoctorFinding("C compiler", "note", "none", advice)


def native_sources() -> dict[str, Path]:
    """Module name → .pyx file of all modules that have a native form."""
    found = {}
    for package in PACKAGES:
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            for path in sorted(Path(place).rglob("_*.pyx")):
                found[".".join((package, *path.relative_to(place).with_suffix("").parts))] = path
    return found


def native_state(name: str, source: Path) -> str:
    """ "" when the module is built and loads, else the reason why not."""
    built = [source.with_name(source.stem + suffix) for suffix in EXTENSION_SUFFIXES]
    if not any(path.exists() for path in built):
        return "not built"
    try:
        importlib.import_module(name)
    except Exception as fault:
        return f"does not load ({fault})"
    return ""


def native_modules() -> DoctorFinding:
    """The active native modules; the others run as their references in Python."""
    sources = native_sources()
    if os.environ.get("PENSTOCK_PURE"):
        words = "all off, because PENSTOCK_PURE is set; the references in Python run"
        return DoctorFinding("native modules", "note", words, "unset PENSTOCK_PURE for speed")
    states = {name: native_state(name, path) for name, path in sources.items()}
    off = {name: state for name, state in states.items() if state}
    if not off:
        return DoctorFinding("native modules", "ok", f"all {len(states)} active")
    words = f"{len(states) - len(off)} of {len(states)} active; pure Python: " + ", ".join(
        f"{name} {state}" for name, state in off.items()
    )
    return DoctorFinding("native modules", "note", words, "with a C compiler, run `make native`")


def certificate(path: Path) -> DoctorFinding:
    """The end of a certificate, as the proxies note it."""
    subject = f"certificate {path.name}"
    try:
        validity = validity_of(path.read_text(errors="replace"))
    except (OSError, NotACertificate) as error:
        return DoctorFinding(subject, "missing", f"{path}: cannot be used: {error}", "give the PEM file of --tls-cert")
    fault = validity.fault(time.time())
    if not fault:
        return DoctorFinding(subject, "ok", f"valid until {validity.end}")
    return DoctorFinding(subject, "note", fault, f"replace {path}: the proxies load it without a restart")


def languages() -> list[DoctorFinding]:
    """The clients' tool chains. Only Python's is required."""
    findings = []
    for language in TOOLS:
        if lacking := missing(language):
            advice = f"optional, for the {language} client: scripts/system-packages test installs it as root"
            findings.append(
                DoctorFinding(f"client {language}", "note", f"cannot be built: no {', '.join(lacking)}", advice)
            )
        else:
            findings.append(DoctorFinding(f"client {language}", "ok", "ready to build and run"))
    return findings


def programs() -> list[DoctorFinding]:
    findings = []
    for name, use in OPTIONAL_PROGRAMS.items():
        path = shutil.which(name)
        advice = "" if path else f"optional: install it for {use}"
        findings.append(DoctorFinding(name, "ok" if path else "note", path or "not installed", advice))
    return findings
