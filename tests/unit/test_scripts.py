"""scripts/step, by which the set-up shows what it does."""

import subprocess
from pathlib import Path

from tests.waiting import until

STEP = Path(__file__).resolve().parents[2] / "scripts" / "step"


def step(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([STEP, "Trying", "sh", "-c", command], capture_output=True, text=True, timeout=30)


def test_a_step_that_succeeds_shows_its_label_and_none_of_its_output():
    run = step("echo of no interest")
    assert (run.returncode, run.stdout, run.stderr) == (0, "Trying\n", "")


def test_a_step_that_fails_shows_all_of_its_output_and_passes_its_exit_code_on():
    run = step("echo first; echo second >&2; exit 7")
    assert run.returncode == 7
    assert run.stdout == "Trying\nfirst\nsecond\nTrying: failed with exit code 7\n"


def test_a_step_that_is_interrupted_ends_its_command(tmp_path):
    command = f"echo $$ > {tmp_path}/pid; exec sleep 60"
    running = subprocess.Popen([STEP, "Trying", "sh", "-c", command], stdout=subprocess.PIPE)
    written = tmp_path / "pid"
    pid = until(lambda: written.exists() and written.read_text().strip(), "the command began")
    running.terminate()
    assert running.wait(timeout=10) == 130
    assert not Path(f"/proc/{pid}").exists()
