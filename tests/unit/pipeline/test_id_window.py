"""The target's window of ids: told, compared with a batch's age, and kept by the journal of a replay."""

from types import SimpleNamespace

import pytest

from pipeline.errors import PipelineError
from pipeline.replay_journal import ReplayJournal, check_repetition
from pipeline.sink import window
from pipeline.sink.window import id_window_s, planned_ms, warning_of

WHAT = {"from": "orders", "to": "again", "ids": "new"}


class FakePulls:
    """A proxy that knows these topics with their windows, one name per page."""

    def __init__(self, windows):
        self.windows = windows

    def __call__(self, endpoints):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def topics_after(self, name):
        following = [each for each in sorted(self.windows) if each > name][:1]
        return [SimpleNamespace(topic=each, id_window_ms=self.windows[each]) for each in following]


@pytest.mark.parametrize(
    ("topic", "expected"), [("orders", 600), ("a", 1.5), ("orders-eu", 0), ("order", None), ("z", None)]
)
def test_the_window_of_exactly_this_topic_is_told(monkeypatch, topic, expected):
    monkeypatch.setattr(window, "PositionPulls", FakePulls({"a": 1_500, "orders": 600_000, "orders-eu": 0}))
    assert id_window_s(None, topic) == expected


def test_a_batch_was_planned_when_its_checkpoint_says_so(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "7").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000123}\n{}')
    assert planned_ms(str(tmp_path), 7) == planned_ms(f"file:{tmp_path}", 7) == 1_700_000_000_123
    (tmp_path / "offsets" / "8").write_text("v1\n[]")
    assert planned_ms(str(tmp_path), 8) is planned_ms(str(tmp_path), 9) is None


def test_a_batch_is_warned_of_by_name_once_it_or_its_repetition_comes_after_the_window():
    assert warning_of(7, "copy", 299, 600) == ""
    assert "batch 7: committed 301 s after it was planned, and topic copy recognises an id for 600 s" in warning_of(
        7, "copy", 301, 600
    )
    assert "can come too late" in warning_of(7, "copy", 301, 600)
    assert "may be stored twice" in warning_of(7, "copy", 601, 600)
    assert "may be stored twice" in warning_of(7, "copy", 1, 0)


def test_a_journal_keeps_the_first_begin_of_its_replay_and_refuses_another_one(tmp_path):
    path = str(tmp_path / "journal.json")
    assert ReplayJournal(path, WHAT).began_ms(5_000) == 5_000
    assert ReplayJournal(path, WHAT).began_ms(9_000) == 5_000
    with pytest.raises(PipelineError, match="is of the replay"):
        ReplayJournal(path, {**WHAT, "to": "other"}).began_ms(9_000)
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(PipelineError, match="is no journal of a replay"):
        ReplayJournal(str(tmp_path / "other.json"), WHAT).began_ms(1)
    with pytest.raises(PipelineError, match="No such file or directory: use a file that can be written"):
        ReplayJournal(str(tmp_path / "nowhere" / "j"), WHAT).began_ms(1)


def test_a_repetition_within_the_window_is_let_through_and_a_later_one_refused_with_the_figures():
    check_repetition("again", 1_000, 1_000, None, "j")
    check_repetition("again", 1_000, 601_000, 600, "j")
    with pytest.raises(PipelineError, match=r"began 601 s ago, and topic again recognises an id for 600 s"):
        check_repetition("again", 1_000, 602_000, 600, "j")
    with pytest.raises(PipelineError, match="is not known"):
        check_repetition("again", 1_000, 2_000, None, "j")
