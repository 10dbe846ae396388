"""Machines on one machine, to follow a page of commands on: each has a network, a host name, processes and folders of its own.

    with Network("m1", "m2") as network, Machine("m1", network, tmp_path) as machine:
        machine.run("hostname > /etc/motd; systemctl start penstock-engine")

It sees the files of this machine, and what it changes of them stays its own. `systemctl` is Debian's
package of that name, which starts units without systemd, after a script has done for them what that package does not:
directories and credentials. `scp` puts files where the named machine finds them.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.services import require
from tests.services.network import Network
from tests.services.zookeeper import JAR_FOLDER, JARS, JAVA_OPTIONS, MAIN_CLASS
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SETUP = """\
set -e
hostname {name}
mount -t tmpfs none {own}/changes
cd {own}/changes
mkdir -m 755 upper work root
mount -t overlay none -o lowerdir=/,upperdir=upper,workdir=work root
cd root
for folder in proc sys dev {mounted}; do
  mkdir -p ./$folder
  mount --rbind /$folder ./$folder
done
mkdir -p var/lib/penstock var/lib/zookeeper etc/zookeeper/conf etc/systemd/system mnt/post
mount --bind {own}/data var/lib/penstock
mount --bind {post} mnt/post
for folder in run var/log; do mount -t tmpfs none $folder; done
for folder in {closed}; do chmod a+x .$folder; done
echo "$HOSTS" >> etc/hosts
cp {systemctl} usr/local/bin/systemctl.debian
echo "$SYSTEMCTL" > usr/local/bin/systemctl
chmod +x usr/local/bin/systemctl
ln -sf {penstock} usr/local/bin/penstock
echo "$SCP" > usr/local/bin/scp
chmod +x usr/local/bin/scp
echo "$ZOOKEEPER" > etc/systemd/system/zookeeper.service
cp {units}/*.service etc/systemd/system/
for unit in etc/systemd/system/penstock-*.service; do
  echo "[Service]" >> $unit
  echo "Environment=CREDENTIALS_DIRECTORY=/run/credentials/$(basename $unit)" >> $unit
done
mkdir old
pivot_root . old
cd /
umount -l old
echo made
exec sleep 3600
"""
SYSTEMCTL = """\
#!/bin/sh
# StateDirectory, RuntimeDirectory and LoadCredential of the units that are named.
of() { sed -n "s/^$1=//p" $unit; }
for name; do
  unit=/etc/systemd/system/$name.service
  [ -f $unit ] && [ $name != zookeeper ] || continue
  user=$(of User) given=/run/credentials/$name.service
  mkdir -p -m 0755 /run/credentials
  for folder in $(of StateDirectory); do install -d -o $user -g $user -m 0700 /var/lib/$folder; done
  for folder in $(of RuntimeDirectory); do install -d -o $user -g $user -m $(of RuntimeDirectoryMode) /run/$folder; done
  rm -rf $given
  install -d -o $user -m 0500 $given
  for pair in $(of LoadCredential); do install -o $user -m 0400 ${pair#*:} $given/${pair%%:*} || exit 243; done
done
exec systemctl.debian "$@"
"""
SCP = """\
#!/bin/sh
for last; do :; done
host=${last%%:*}; folder=${last#*:}
mkdir -p /mnt/post/$host$folder
while [ $# -gt 1 ]; do cp -p "$1" /mnt/post/$host$folder; shift; done"""
TAKE_POST = 'cd /mnt/post/{name} && find . -type f | while read -r file; do mv "$file" "/$file"; done'
ZOOKEEPER = f"""\
[Service]
Type=simple
ExecStart=/usr/bin/env java {" ".join(JAVA_OPTIONS)} -cp {":".join(f"{JAR_FOLDER}/{name}.jar" for name in JARS)} \
{MAIN_CLASS} /etc/zookeeper/conf/zoo.cfg"""


class Machine:
    """
    Args:
        folder: for what all machines of a test share, and for this one's data.
    """

    def __init__(self, name: str, network: Network, folder: Path) -> None:
        self.name = name
        self._network, self._folder = network, folder
        self._holder: subprocess.Popen[str] | None = None
        self._inside: list[str] = []

    def start(self) -> "Machine":
        require(shutil.which("java") and (JAR_FOLDER / f"{JARS[0]}.jar").exists(), "ZooKeeper's jars")
        post, own = self._folder / "post", self._folder / self.name
        for each in (post / self.name, own / "data", own / "changes"):
            each.mkdir(parents=True, exist_ok=True)
        hosts = "\n".join(f"{self._network.address(each)} {each}" for each in self._network.hosts)
        script = SETUP.format(
            name=self.name, own=own, post=post, mounted=" ".join(str(each)[1:] for each in foreign_folders()),
            closed=" ".join(map(str, closed_folders())), systemctl=systemctl(self._folder),
            penstock=Path(sys.prefix) / "bin/penstock", units=ROOT / "packaging/systemd",
        )  # fmt: skip
        texts = {"HOSTS": hosts, "SCP": SCP, "SYSTEMCTL": SYSTEMCTL, "ZOOKEEPER": ZOOKEEPER}
        namespaces = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen(
            [*self._network.inside(self.name), *namespaces, "sh", "-c", script],
            env={**os.environ, **texts}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "made\n", f"{self.name}: a machine of its own is not possible here"
        inner = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()[0]
        self._inside = ["nsenter", "--target", inner, "--mount", "--root", "--uts", "--pid", "--net", "--"]
        return self

    def command(self, *words: str) -> list[str]:
        """The command line that runs `words` on it."""
        return [*self._inside, *words]

    def run(self, script: str, timeout_s: float = 120.0, program: Sequence[str] = ("bash", "-e", "-s")) -> str:
        """Let a program read the script on its standard input, in /root; returns the output. Raises AssertionError."""
        subprocess.run(self.command("sh", "-c", TAKE_POST.format(name=self.name)), check=True, timeout=30)
        done = subprocess.run(
            self.command("env", "--chdir=/root", "HOME=/root", *program), input=script, capture_output=True, text=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.name}: {script}\n{done.stdout}{done.stderr}\n{self.journals()}"
        return done.stdout

    def journals(self) -> str:
        """The last lines of each unit's output."""
        tail = "tail -n 15 /var/log/journal/penstock-*.log"
        return subprocess.run(self.command("sh", "-c", tail), capture_output=True, text=True, check=False).stdout

    def __enter__(self) -> "Machine":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self._holder is not None:
            self._holder.kill()  # and with it all processes of the machine
            self._holder.wait()
            until(lambda: not self._has_processes(), f"the processes of {self.name} end", 10)

    def _has_processes(self) -> bool:
        return subprocess.run([*self._inside, "true"], capture_output=True, check=False).returncode == 0


PLACES = [each.resolve() for each in (Path(sys.prefix), Path(sys.base_prefix), ROOT)]
"""What a machine runs: this Python and this tree."""


def foreign_folders() -> list[Path]:
    """Those on another device than the root, which a machine's copy of the root does not have."""
    return [each for each in PLACES if each.stat().st_dev != Path("/").stat().st_dev]


def closed_folders() -> list[Path]:
    """Folders of the root's device above them that other users may not pass."""
    above = {each for place in PLACES for each in place.parents if each.stat().st_dev == Path("/").stat().st_dev}
    return sorted(each for each in above - {Path("/")} if not each.stat().st_mode & 0o001)


def systemctl(folder: Path) -> Path:
    """Debian's systemctl for machines without systemd. Its package cannot be installed beside systemd: it is unpacked."""
    kept = ROOT / "build" / "systemctl"
    program = kept / "usr/bin/systemctl"
    if not program.exists():
        fetched = folder / "systemctl-package"
        fetched.mkdir()
        # Without package lists, as in a container image, they are fetched first.
        download = "apt-get download systemctl || { apt-get update -qq && apt-get download systemctl; }"
        done = subprocess.run(["sh", "-c", download], cwd=fetched, capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"Debian's package systemctl: {done.stderr.strip()}")
        subprocess.run(["dpkg-deb", "-x", *map(str, fetched.glob("*.deb")), str(kept)], check=True)
    return program
