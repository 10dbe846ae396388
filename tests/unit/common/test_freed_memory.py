"""Freed memory that stays with the process."""

import subprocess
import sys

PROGRAM = """
import resource
from common.freed_memory import keep_freed_memory
if {keeps}:
    keep_freed_memory()
def reply():
    parts = [b"x" * (3 << 20) for _ in range(3)]
reply()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    reply()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(keeps: bool) -> int:
    command = [sys.executable, "-c", PROGRAM.format(keeps=keeps)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_replies_of_megabytes_get_the_pages_of_those_before():
    assert page_faults(keeps=True) < 1_000 < page_faults(keeps=False)
