"""A real PostgreSQL on a socket of its own, as Debian ships it."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from tests.services import require
from tests.waiting import until

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SETTINGS = ("fsync=off", "shared_buffers=8MB", "listen_addresses=")
OPEN_ROOT = """
mount -t tmpfs -o mode=755 none /mnt
for each in /*; do
  if [ -L "$each" ]; then cp -P "$each" /mnt; fi
  if [ -d "$each" ] && [ ! -L "$each" ] && [ "$each" != /mnt ]; then
    mkdir "/mnt$each"
    mount --rbind "$each" "/mnt$each"
  fi
done
exec chroot "$0" /mnt "$@"
"""
"""Runs a command in a copy of the root folder: where only root may pass it, user postgres could start nothing."""


class PostgreSQL:
    """Runs as user `postgres` where the tests are root, because the server refuses root."""

    def __init__(self, directory: Path) -> None:
        require(FOLDERS, "PostgreSQL: apt install postgresql")
        self._bin, self._directory = FOLDERS[-1], directory
        self._as = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._directory}"

    def _run(self, *command: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*self._user(), str(self._bin / command[0]), *command[1:]], cwd="/",
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _user(self) -> list[str]:
        """The front of a command line that changes to the user."""
        if self._as is None:
            return []
        if Path("/").stat().st_mode & 0o001:
            return ["setpriv", f"--reuid={self._as.pw_uid}", f"--regid={self._as.pw_gid}", "--clear-groups", "--"]
        user = f"--userspec={self._as.pw_uid}:{self._as.pw_gid}"
        return ["unshare", "--mount", "--propagation", "private", "sh", "-e", "-c", OPEN_ROOT, user]

    def __enter__(self) -> "PostgreSQL":
        data = self._directory / "data"
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._as:
            os.chown(self._directory, self._as.pw_uid, self._as.pw_gid)
        made = self._run(
            "initdb",
            "-D",
            str(data),
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-sync",
            "--no-instructions",
        )
        assert made.wait(60) == 0, "initdb failed"
        settings = [part for each in SETTINGS for part in ("-c", each)]
        self._process = self._run("postgres", "-D", str(data), "-k", str(self._directory), *settings)
        until(lambda: self._run("pg_isready", "-q", "-h", str(self._directory)).wait(10) == 0, "PostgreSQL serves", 30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(self._directory, ignore_errors=True)
