"""Counts the lines of code of the clients, for the table of README.md: `python clients/sizes.py`.

A line counts when it has more than a comment or a docstring. Generated code, programs and tests do not count.
"""

import io
import re
import tokenize
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent
SOURCES = {
    "Python": ("python/penstock_client", "*.py"),
    "PHP": ("php/src", "*.php"),
    "Go": ("go", "*.go"),
    "C++": ("cpp", "*/**/*.[ch]*"),
    "Java": ("java/src/main/java/io/penstock/client", "*.java"),
    "Node": ("node", "*/*.js"),
    "Rust": ("rust/src", "*.rs"),
    "C#": ("csharp/src", "*.cs"),
}
LEFT_OUT = re.compile(r"/(gen|gen-\w+|build|examples|tests?|node_modules|target)/|_test\.go|_tests?\.(cc|rs|js)")
PARTS = {
    "loop, leases, workers": re.compile(r"(loop|running|held|RunLoop|RunOptions|HeldLeases|HeldDelivery|Outage)\.\w+$"),
    "batching": re.compile(r"[Bb]atching(Producer|Options)?\.\w+$"),
    "SHA-256": re.compile(r"sha256\.\w+$"),
}
CORE = "core"
TEXT_OR_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)|/\*.*?\*/|//[^\n]*""", re.DOTALL)
RUST_TESTS = "#[cfg(test)]"  # at the end of a module
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of(path: Path) -> int:
    text = path.read_text()
    if path.suffix == ".py":
        return lines_of_python(text)
    code = TEXT_OR_COMMENT.sub(lambda found: found[1] or "", text.partition(RUST_TESTS)[0])
    return sum(bool(line.strip()) for line in code.splitlines())


def lines_of_python(text: str) -> int:
    found: set[int] = set()
    begins = True  # of a statement: a string there is a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in LAYOUT:
            begins = begins or token.type == tokenize.NEWLINE
        elif not (begins and token.type == tokenize.STRING):
            found.update(range(token.start[0], token.end[0] + 1))
            begins = False
    return len(found)


def parts_of(language: str) -> dict[str, int]:
    """Lines per part."""
    folder, pattern = SOURCES[language]
    counted = dict.fromkeys((CORE, *PARTS), 0)
    for path in sorted((CLIENTS / folder).glob(pattern)):
        if not LEFT_OUT.search(f"/{path.relative_to(CLIENTS)}"):
            part = next((name for name, names in PARTS.items() if names.search(path.name)), CORE)
            counted[part] += lines_of(path)
    return counted


def table() -> str:
    counted = {language: parts_of(language) for language in SOURCES}
    rows = [["", *counted], ["---"] * (1 + len(counted))]
    rows += [
        [part, *(f"{each[part]:,}" if each[part] else "–" for each in counted.values())] for part in (CORE, *PARTS)
    ]
    rows += [["all", *(f"{sum(each.values()):,}" for each in counted.values())]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


if __name__ == "__main__":
    print(table(), end="")
