"""The programs that the console shows to paste: each runs as pasted, and sends and pulls."""

import re
import subprocess
import sys

import pytest

from console.client_code.examples import LANGUAGES, ClientPlace, example
from tests.e2e.clients.access import of_running
from tests.services import thrift_toolchains

ROOT = thrift_toolchains.CLIENTS.parent
RUN = re.compile(r"Run:\s+(.*)")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_of_the_console_runs_as_pasted(language, penstock_up, tmp_path):
    """In the project's root, as its comment says; what it does once, `make clients` has done for all."""
    thrift_toolchains.build(language)
    access = of_running(penstock_up)
    topic = access.topic("code")
    text = example(language, ClientPlace(access.producer, access.consumer, access.app, access.key_id, topic, topic))
    file = LANGUAGES[language].file
    (tmp_path / file).write_text(text)
    for name in ("clients", "thrift"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "penstock-client").symlink_to(ROOT / "clients" / "node")
    command = RUN.search(text)[1].replace("PENSTOCK_SECRET=… ", "").replace("python3", sys.executable)
    variables = {"PENSTOCK_SECRET": access.secret, "PYTHONPATH": str(ROOT / "clients" / "python")}
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=thrift_toolchains.environment(**variables), capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    title = LANGUAGES[language].title
    assert re.fullmatch(rf"sent \S+\npulled hello from {re.escape(title)}\n", done.stdout)
