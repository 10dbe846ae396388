"""The code blocks of the pages, and what the words behind a block's fence say about it.

A fence names a language. Behind `sh` and `python` may stand a word:

- none: a test runs the block as it stands; RUN_BY has which.
- `install`: packages for other machines than this tree's; the extras are checked.
- `serves`: each line runs until Ctrl-C. The tests of its subject start the same processes.
- `example`: has places that only the reader has, or takes an hour. The tests of its subject run the same commands.
- `fragment` (of a program): lines for a reader's own program.
- names of machines, on the page about several machines.

Of blocks that are not run as they stand, also of `console` with its `$ penstock …`, each command of Penstock is checked
against the program.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_BY = {
    "README.md": "tests/e2e/test_pages.py",
    "clients/README.md": "tests/e2e/test_pages.py",
    "docs/backup.md": "tests/e2e/test_backup.py",
    "docs/broker-groups.md": "tests/e2e/test_pages.py",
    "docs/commands.md": "tests/e2e/test_pages.py",
    "docs/console.md": "tests/unit/console/test_database.py",
    "docs/delays.md": "tests/e2e/test_pages.py",
    "docs/deployment.md": "tests/e2e/test_deployment.py",
    "docs/filters.md": "tests/e2e/test_pages.py",
    "docs/hardening.md": "tests/e2e/test_pages.py",
    "docs/kafka.md": "tests/e2e/kafka/test_page.py",
    "docs/runbooks.md": "tests/e2e/test_pages.py",
    "docs/runs/tasks.md": "tests/e2e/test_pages.py",
    "docs/spark.md": "tests/e2e/pipeline/test_page.py",
}
"""The test that runs a page's blocks without a word behind `sh` or `python`."""
NOT_RUN = ("install", "serves", "example", "fragment")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    word: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language in ("sh", "python") and self.word not in NOT_RUN


def blocks(*pages: str) -> list[Block]:
    """The blocks of pages, which are named from the root, in their order."""
    found = []
    for page in pages:
        text = (ROOT / page).read_text()
        for fence in FENCE.finditer(text):
            found.append(Block(page, text[: fence.start()].count("\n") + 1, *fence.groups()))
    return found


def run_blocks(*pages: str) -> list[Block]:
    return [block for block in blocks(*pages) if block.is_run]


def penstock_commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of Penstock, without redirections. A string ends on its line."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    for line in text.splitlines() if block.language in ("sh", "console") else ():
        for words in commands(line):
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words = words[1:]
            if words[:1] == ["penstock"]:
                yield words[1:]


def commands(line: str) -> Iterator[list[str]]:
    """The commands of a line of the shell, each as its words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "", True
    command: list[str] = []
    is_file = False
    for word in lexer:
        if word.startswith("#"):
            break
        if set(word) <= set(";&|()<>"):
            is_file = word[0] in "<>"
            if not is_file:
                yield command
                command = []
        elif not is_file:
            command.append(word)
        else:
            is_file = False
    yield command
