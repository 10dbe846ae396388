"""Every code block of README and the how-to pages is run by a test, or says on its fence why not; tests/pages.py."""

import re
from importlib.metadata import metadata

import click
import pytest

from penstock.__main__ import cli
from tests.pages import ROOT, RUN_BY, Block, blocks, penstock_commands

OPTIONS = (ROOT / "docs" / "options.md").read_text()
INDEX = (ROOT / "docs" / "README.md").read_text()
HOW_TO = INDEX.partition("## How-to\n")[2].partition("\n## ")[0]
LANGUAGES_SHOWN = INDEX.partition("## Start\n")[2].partition("\n## ")[0]
LINK = re.compile(r"\]\(([^)#]+\.md)\)")
PAGES = sorted(
    {
        str((ROOT / "docs" / link).resolve().relative_to(ROOT))
        for part in (HOW_TO, LANGUAGES_SHOWN)
        for link in LINK.findall(part)
    }
)
WORDS = {
    "sh": ("", "install", "serves", "example"),
    "python": ("", "fragment"),
    **dict.fromkeys(("go", "cpp", "java", "js", "php", "rust", "csharp"), ("", "fragment")),
    **dict.fromkeys(("console", "text", "yaml", "toml"), ("",)),
}
MACHINES = re.compile(r"(rolling )?m\d( m\d)*")
PROCESSES = ("engine", "producer-proxy", "consumer-proxy", "controller", "kafka-bridge", "console")
SHOWN = [block for page in PAGES for block in blocks(page) if not block.is_run]
by_page = pytest.mark.parametrize("page", PAGES)
by_block = pytest.mark.parametrize("block", SHOWN, ids=lambda block: f"{block.page}:{block.line}")


def test_the_pages_are_those_of_the_index():
    assert {"README.md", "CONTRIBUTING.md", "docs/commands.md", "docs/deployment.md", "clients/go/README.md"} <= {
        *PAGES
    }


@by_page
def test_every_block_has_a_language_and_a_word_that_is_known(page):
    assert (ROOT / page).read_text().count("\n```") == 2 * len(blocks(page)), "a fence that is not closed, or indented"
    for block in blocks(page):
        is_machine = page in RUN_BY and MACHINES.fullmatch(block.word)
        assert is_machine or block.word in WORDS.get(block.language, ()), f"{page}:{block.line}: what runs this block?"


@by_page
def test_a_page_with_blocks_to_run_is_run_by_a_test_that_names_it(page):
    if any(block.is_run for block in blocks(page)):
        assert page in RUN_BY, f"{page}: add it to a test and to tests/pages.py, or say on the fence why not"
    if page in RUN_BY:
        assert page.rsplit("/", 1)[-1] in (ROOT / RUN_BY[page]).read_text()


@by_block
def test_the_commands_of_a_block_that_is_not_run_exist_with_their_options(block):
    for words in penstock_commands(block):
        check(words, block)
    for target in re.findall(r"^make ([a-z][a-z-]*)", block.text, re.MULTILINE) if block.language == "sh" else ():
        assert f"\n{target}:" in (ROOT / "Makefile").read_text(), target
    for module in re.findall(r"python -m ((?:bench|penstock|common)[\w.]*)", block.text):
        place = ROOT / module.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module


def check(words: list[str], block: Block) -> None:
    """The command, the names of its options and the values of those with a list of values."""
    where = f"{block.page}:{block.line}: penstock {' '.join(words)}"
    words = [word for word in words if word != "…"]
    if words[0] in PROCESSES:
        options = OPTIONS.partition(f"## `[{words[0]}]`")[2].partition("\n## ")[0]
        for word in words:
            assert not word.startswith("--") or f"| `{word[2:]}` |" in options, where
        return
    command, context = cli, click.Context(cli, info_name="penstock")
    while isinstance(command, click.Group):
        assert words and command.get_command(context, words[0]), where
        command, words = command.get_command(context, words[0]), words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        given, _, order = command.make_parser(context).parse_args(words)
        for option in order:
            if isinstance(option.type, click.Choice) and isinstance(given.get(option.name), str):
                option.type.convert(given[option.name], option, context)
    except click.UsageError as fault:
        pytest.fail(f"{where}: {fault.message}")


@by_block
def test_packages_are_installed_with_extras_that_exist_and_programs_compile(block):
    extras = metadata("penstock").get_all("Provides-Extra")
    for names in re.findall(r"pip install '?penstock\[([^\]]+)\]", block.text):
        assert {*names.split(",")} <= {*extras}, names
    if block.language == "python":
        compile(block.text, f"{block.page}:{block.line}", "exec")
