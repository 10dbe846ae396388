"""Checks of the documentation: links, widths, and the index.

A page is a Markdown file of the project's root, of `docs/` or of `clients/` and `bench/`. Anchors follow GitHub's rule.
"""

import re
import subprocess
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("docs", "clients", "bench")
TOURS = (
    "common",
    "engine",
    "producer_proxy",
    "consumer_proxy",
    "controller",
    "kafka_bridge",
    "migration",
    "console",
    "tests",
)
"""Packages, whose README.md lists their files; links are checked, widths are not: most of a tour is a table."""
COLUMNS_MAX = 120
GENERATED = "This page is generated"
"""Marks a page whose lines its program wraps."""
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
MADE = {"build", "gen", "node_modules", "vendor"}
EXTERNAL = re.compile(r"[a-z]+:")
HEADING = re.compile(r"#{1,6} (.+)")
IDENTIFIER = re.compile(r'id="([^"]+)"')
CODE = re.compile(r"`[^`]*`")


def pages_below(*folders: str) -> list[Path]:
    """Pages under version control in the project's root and in folders; generated and installed ones are left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    except (FileNotFoundError, subprocess.CalledProcessError):  # a source archive, or a machine without git
        found = (path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.md"))
        names = [str(path) for path in found if not MADE.intersection(path.parts)]
        names += [path.name for path in ROOT.glob("*.md")]
    return [ROOT / name for name in names if "/" not in name or name.split("/")[0] in folders]


PAGES = pages_below(*DOCUMENTS)
by_page = partial(pytest.mark.parametrize, "page", ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Lines outside fenced code, with their numbers."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def links(page: Path) -> Iterator[tuple[int, str]]:
    for number, line in prose(page):
        for target in LINK.findall(CODE.sub(lambda found: "`" * len(found.group()), line)):
            if not EXTERNAL.match(target):
                yield number, target


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of headings, as GitHub makes them, and of explicit ids."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    for _, line in prose(page):
        found.update(IDENTIFIER.findall(line))
        heading = HEADING.fullmatch(line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1))
            slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            seen = counts.get(slug, 0)
            counts[slug] = seen + 1
            found.add(f"{slug}-{seen}" if seen else slug)
    return frozenset(found)


def faults_of_links(page: Path) -> Iterator[str]:
    for number, target in links(page):
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists():
            yield f"{page.name}:{number}: {target}: no such file"
        elif anchor and aim.suffix == ".md" and anchor not in anchors(aim):
            yield f"{page.name}:{number}: {target}: no such heading or id"


def is_wide(line: str) -> bool:
    """Tables, and lines of one unbreakable word (a URL, a command), may be wider."""
    if len(line) <= COLUMNS_MAX or line.lstrip().startswith("|"):
        return False
    return max(map(len, CODE.sub(lambda found: found.group().replace(" ", "_"), line).split())) < COLUMNS_MAX


@by_page(pages_below(*DOCUMENTS, *TOURS))
def test_every_relative_link_and_anchor_of_a_page_resolves(page):
    assert not list(faults_of_links(page))


@by_page([page for page in PAGES if GENERATED not in page.read_text()])
def test_no_line_of_a_page_is_wider_than_120_columns_outside_tables_and_code(page):
    assert not [f"{page.relative_to(ROOT)}:{number}: {len(line)}" for number, line in prose(page) if is_wide(line)]


def test_every_page_of_docs_is_reachable_from_its_index():
    index = ROOT / "docs" / "README.md"
    reached, waiting = {index}, [index]
    while waiting:
        page = waiting.pop()
        for _, target in links(page):
            aim = (page.parent / target.partition("#")[0]).resolve()
            if aim.suffix == ".md" and aim.exists() and aim not in reached:
                reached.add(aim)
                waiting.append(aim)
    assert not [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if page not in reached]


def test_every_picture_of_docs_is_shown_on_a_page():
    shown = {(page.parent / target).resolve() for page in PAGES for _, target in links(page)}
    pictures = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".svg", ".png")]
    assert not [str(path.relative_to(ROOT)) for path in pictures if path not in shown]


def test_every_old_word_of_the_glossary_has_a_new_one():
    table = (ROOT / "docs" / "glossary.md").read_text().partition("## Words that changed")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 20 and all(len(row) == 2 and all(row) for row in rows)


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n[here](#a-heading) [there](gone.md) [file](page.md#gone) `[code](no)` [web](https://x)\n"
    )
    assert list(faults_of_links(page)) == [
        "page.md:2: gone.md: no such file",
        "page.md:2: page.md#gone: no such heading or id",
    ]


def test_a_wide_line_is_found():
    assert is_wide("x " * 65) and not is_wide("x" * 130) and not is_wide("| " + "x " * 65)
