"""The common position of two logs: by the newest epoch that both have from the same position on."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EpochOrderError
from engine.log.epochs import EpochHistory, EpochStart, common_position


def history(*starts: tuple[int, int]) -> EpochHistory:
    return EpochHistory([EpochStart(*each) for each in starts])


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "common"),
    [
        ((), 500, (), 300, 300),
        (((1, 100),), 500, ((1, 100),), 300, 300),
        (((1, 100), (2, 400)), 500, ((1, 100),), 300, 300),
        (((1, 100), (2, 400)), 500, ((1, 100),), 450, 400),
        (((1, 100), (2, 400)), 500, ((1, 100), (3, 300)), 600, 300),
        (((1, 100), (2, 400)), 500, ((1, 100), (2, 400), (5, 480)), 490, 480),
        (((1, 100),), 500, ((1, 90),), 300, 90),
        (((4, 100),), 500, (), 300, 100),
    ],
)
def test_two_logs_are_equal_up_to_the_end_of_their_newest_common_epoch(own, own_end, other, other_end, common):
    assert common_position(history(*own), own_end, history(*other), other_end) == common
    assert common_position(history(*other), other_end, history(*own), own_end) == common


@pytest.mark.parametrize(("epoch", "start"), [(2, 400), (1, 500), (3, 399)])
def test_an_epoch_follows_the_last_one(epoch, start):
    epochs = history((1, 100), (2, 400))
    with pytest.raises(EpochOrderError, match="epoch 2 from 400 on"):
        epochs.begin(epoch, start)
    assert epochs.starts == (EpochStart(1, 100), EpochStart(2, 400))


def test_a_log_that_is_cut_loses_the_epochs_after_its_end():
    epochs = history((1, 100), (2, 400), (5, 600))
    epochs.cut(401)
    assert epochs.starts[-1] == EpochStart(2, 400)
    epochs.cut(400)
    assert epochs.starts[-1] == EpochStart(1, 100)
    epochs.cut(0)
    assert epochs.starts == ()


@given(st.integers(0, 1 << 32))
def test_the_common_position_of_random_lives_is_where_their_bytes_part(seed):
    """Nodes with one byte per batch. A master appends; another node follows it: it is cut, then copies."""
    random = Random(seed)
    nodes = [[0], [0], [0]]  # epochs of the batches; the first is of the lone engine
    histories = [EpochHistory() for _ in nodes]
    for epoch in range(1, random.randint(2, 8)):
        master = random.randrange(3)
        if random.random() < 0.8:  # it may also write nothing under its epoch
            histories[master].begin(epoch, len(nodes[master]))
            nodes[master] += [epoch] * random.randint(1, 4)
        for slave in range(3):
            common = common_position(histories[slave], len(nodes[slave]), histories[master], len(nodes[master]))
            same = next(
                (at for at, (one, other) in enumerate(zip(nodes[slave], nodes[master], strict=False)) if one != other),
                min(len(nodes[slave]), len(nodes[master])),
            )
            assert common == same
            if slave != master and random.random() < 0.6:
                upto = random.randint(common, len(nodes[master]))
                nodes[slave][common:] = nodes[master][common:upto]
                histories[slave] = EpochHistory([each for each in histories[master].starts if each.start < upto])
