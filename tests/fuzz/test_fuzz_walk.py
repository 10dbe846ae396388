"""The short form of the fuzz target, a few seconds in the normal run."""

import pytest

from common.wire import NATIVE
from tests.fuzz import fuzz_walk
from tests.unit.common.wire.agree import check_frame

CORPUS = fuzz_walk.read_corpus(fuzz_walk.CORPUS)


def test_the_corpus_holds_every_seed():
    assert set(fuzz_walk.SEEDS.values()) <= set(CORPUS)


@pytest.mark.parametrize("frame", CORPUS, ids=range(len(CORPUS)))
def test_each_frame_of_the_corpus_keeps_the_rules(frame):
    check_frame(frame)


def test_a_thousand_mutated_frames_keep_the_rules_in_bounded_time_and_memory():
    found = fuzz_walk.fuzz(CORPUS, runs=1000, seed=20240501)
    assert found.walked > 50
    assert found.rss_growth_kib <= 32 * 1024
    assert not NATIVE or found.cpu_s_max <= fuzz_walk.CPU_S_MAX
