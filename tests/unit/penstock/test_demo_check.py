"""The demo's proof must fail for each way in which a message system can be wrong."""

import hashlib

import pytest

from penstock.demo.check import Check
from penstock.demo.errors import DemoError
from penstock.demo.source import CALL_BYTES, DemoSource, read_source

KEYS = 2
LINES = [b"a\n", b"\n", b"a\n", b"no newline at the end"]


@pytest.fixture
def source(tmp_path) -> DemoSource:
    path = tmp_path / "file"
    path.write_bytes(b"".join(LINES))
    return read_source(path, None, tmp_path)


def report(line: int, **other) -> str:
    body = LINES[line] if line < len(LINES) else b""
    fields = {"line": line, "key": f"k{line % KEYS}", "queue": line % KEYS, "offset": line, "attempt": 1}
    fields |= {"digest": hashlib.sha256(body).hexdigest()} | other
    return "\t".join(map(str, fields.values())) + "\n"


def checked(source: DemoSource, reports: list[str]) -> Check:
    check = Check(source, KEYS)
    for each in reports:
        check.take(each)
    return check


def test_a_source_knows_each_line_with_its_newline(source):
    assert (source.count, source.size_bytes, source.longest_bytes) == (4, sum(map(len, LINES)), len(LINES[3]))
    assert source.digest(3) == hashlib.sha256(LINES[3]).digest()


def test_all_lines_once_in_order_per_key_is_proven(source):
    check = checked(source, [report(line) for line in (1, 0, 2, 3)])
    assert check.finish()
    assert check.total() == source.total


@pytest.mark.parametrize(
    ("reports", "fault"),
    [
        ([report(0), report(1), report(2)], "never arrived"),
        ([report(0), report(1), report(1), report(2), report(3)], "more than once"),
        ([report(0), report(1), report(2), report(3, digest="00" * 32)], "another content"),
        ([report(2), report(0), report(1), report(3)], "out of order"),
        ([report(0), report(1), report(2, offset=0), report(3)], "out of order"),
        ([report(0), report(1), report(2, queue=1), report(3)], "two queues"),
        ([report(0), report(1, key="k0"), report(2), report(3)], "another key"),
        ([report(4), *map(report, range(4))], "does not have"),
        (["nonsense\n", *map(report, range(4))], "unreadable"),
    ],
)
def test_a_fault_is_found_and_named(source, reports, fault):
    check = checked(source, reports)
    assert not check.finish()
    assert fault in check.faults.sentence()


def test_only_the_first_lines_are_copied_when_asked_for(source, tmp_path):
    short = read_source(source.path, 2, tmp_path)
    assert (short.path.read_bytes(), short.name) == (b"a\n\n", str(source.path))


def test_an_empty_or_missing_file_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(DemoError, match=name):
            read_source(tmp_path / name, None, tmp_path)


def test_long_lines_make_smaller_calls(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * (CALL_BYTES // 3))
    assert read_source(tmp_path / "long", None, tmp_path).batch(100) == 3
