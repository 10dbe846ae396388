"""The table of the clients' sizes is what is counted."""

import runpy

from tests.pages import ROOT

SIZES = runpy.run_path(str(ROOT / "clients" / "sizes.py"))


def test_the_table_of_the_readme_is_what_is_counted():
    told = "run: python clients/sizes.py, and put its table into clients/README.md"
    assert SIZES["table"]() in (ROOT / "clients" / "README.md").read_text(), told


def test_comments_docstrings_and_empty_lines_do_not_count(tmp_path):
    (tmp_path / "x.py").write_text(
        '"""A module."""\n\nurl = "a"  # why\n\n\ndef f():\n    """It."""\n    return """\n\n"""\n'
    )
    (tmp_path / "x.js").write_text("/* two\n lines */\n// one\nconst url = 'http://x'; // why\n\nf(`a // b`);\n")
    assert [SIZES["lines_of"](tmp_path / name) for name in ("x.py", "x.js")] == [5, 2]
