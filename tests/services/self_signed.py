"""Self-signed certificates for tests, made by the openssl command."""

import shutil
import subprocess
from pathlib import Path

from tests.services import require

MADE = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"


def self_signed(directory: Path, name: str) -> tuple[Path, Path]:
    """A certificate for `name`, an address or a host, and its key, as PEM files."""
    require(shutil.which("openssl"), "the openssl command")
    chain, key = directory / f"{name}.pem", directory / f"{name}.key"
    kind = "IP" if name[0].isdigit() else "DNS"
    named = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={kind}:{name}", "-out", chain, "-keyout", key)
    subprocess.run([*MADE.split(), *named], check=True, capture_output=True)
    return chain, key
