"""The checker itself: a good history passes, and each seeded mutant of it is reported under its own name."""

import random

import pytest

from tests.fault.history import FAILED, OK, UNKNOWN, Delivered, Sent, check, digest, outcome_of


def body(number: int) -> bytes:
    return b"body %d" % number


def good(seed: int) -> tuple[list[Sent], list[Delivered]]:
    """A history with acknowledged, refused and unknown sends, of which some unknown ones were stored."""
    chance = random.Random(seed)
    sent, stored, ends = [], [], [0, 0, 0]
    for number in range(200):
        queue, key = number % 3, f"k{number % 3}"
        outcome = chance.choices([OK, UNKNOWN, FAILED], [8, 1, 1])[0]
        place = None
        if outcome == OK or (outcome == UNKNOWN and chance.random() < 0.5):
            place = (queue, ends[queue])
            ends[queue] += 1
            stored.append(Delivered(f"m{number}", key, digest(body(number)), place))
        sent.append(
            Sent(f"m{number}", key, number, digest(body(number)), outcome, place if outcome == OK else None),
        )
    return sent, sorted(stored, key=lambda each: each.place)


def acknowledged(sent: list[Sent], seed: int) -> Sent:
    return random.Random(seed).choice([each for each in sent if each.outcome == OK])


def index_of(delivered: list[Delivered], wanted: str) -> int:
    return next(index for index, each in enumerate(delivered) if each.id == wanted)


SEEDS = pytest.mark.parametrize("seed", range(10))


@SEEDS
def test_a_history_in_which_all_is_well_passes(seed):
    verdict = check(*good(seed))
    assert verdict.broken() == {}
    assert (verdict.copies, verdict.duplicates) == (0, 0)
    assert verdict.acknowledged > 100 and verdict.unknown > 0


@SEEDS
def test_a_lost_message_is_reported(seed):
    sent, delivered = good(seed)
    victim = acknowledged(sent, seed)
    del delivered[index_of(delivered, victim.id)]
    assert check(sent, delivered).lost == [victim.id]


@SEEDS
def test_an_unknown_message_may_be_missing_at_the_end_and_is_a_hole_in_the_middle(seed):
    sent, delivered = good(seed)
    at = next(index for index, each in enumerate(delivered) if sent[int(each.id[1:])].outcome == UNKNOWN)
    missing = delivered.pop(at)
    rest = [each for each in delivered if each.place[0] == missing.place[0] and each.place[1] > missing.place[1]]
    verdict = check(sent, delivered)
    assert verdict.lost == []
    assert verdict.holes == ([missing.place] if rest else [])


@SEEDS
def test_an_invented_message_is_reported(seed):
    sent, delivered = good(seed)
    queue, offset = delivered[-1].place
    delivered.append(Delivered("nobody", "k0", digest(b"?"), (queue, offset + 1)))
    assert check(sent, delivered).broken() == {"invented": ["nobody"]}


@SEEDS
def test_a_refused_message_that_is_delivered_all_the_same_is_reported(seed):
    sent, delivered = good(seed)
    refused = next(each for each in sent if each.outcome == FAILED)
    queue, offset = delivered[-1].place
    delivered.append(Delivered(refused.id, refused.key, refused.digest, (queue, offset + 1)))
    assert check(sent, delivered).broken() == {"invented": [refused.id]}


@SEEDS
@pytest.mark.parametrize("change", [{"digest": digest(b"flipped")}, {"key": "other"}])
def test_an_altered_message_is_reported(seed, change):
    sent, delivered = good(seed)
    at = random.Random(seed).randrange(len(delivered))
    delivered[at] = delivered[at]._replace(**change)
    assert check(sent, delivered).broken() == {"altered": [delivered[at].id]}


@SEEDS
def test_a_pair_swapped_within_its_key_is_reported(seed):
    sent, delivered = good(seed)
    one = acknowledged(sent[:-20], seed)
    two = next(each for each in sent if each.outcome == OK and each.key == one.key and each.number > one.number)
    for this, other in ((one, two), (two, one)):
        sent[this.number] = this._replace(place=other.place)
        delivered[index_of(delivered, this.id)] = Delivered(this.id, this.key, this.digest, other.place)
    assert (one.id, two.id) in check(sent, sorted(delivered, key=lambda each: each.place)).swapped


@SEEDS
def test_an_offset_with_two_values_is_reported(seed):
    sent, delivered = good(seed)
    victim = acknowledged(sent, seed)
    delivered[index_of(delivered, victim.id)] = Delivered("m-other", victim.key, victim.digest, victim.place)
    verdict = check(sent, delivered)
    assert verdict.two_values == [victim.place]
    assert (verdict.lost, verdict.invented) == ([victim.id], ["m-other"])


@SEEDS
def test_a_message_delivered_at_another_place_than_it_was_acknowledged_at_is_lost(seed):
    sent, delivered = good(seed)
    victim = acknowledged(sent, seed)
    at = index_of(delivered, victim.id)
    delivered[at] = delivered[at]._replace(place=(victim.place[0], 10_000))
    assert check(sent, delivered).lost == [victim.id]


@SEEDS
def test_a_reader_that_goes_back_is_reported_and_a_redelivery_is_only_counted(seed):
    sent, delivered = good(seed)
    again = delivered[random.Random(seed).randrange(len(delivered) - 1)]
    assert check(sent, [*delivered, again]).backwards
    verdict = check(sent, [*delivered, again._replace(attempt=2)])
    assert (verdict.broken(), verdict.duplicates) == ({}, 1)


def test_a_message_stored_twice_is_counted():
    sent, delivered = good(1)
    last = delivered[-1]
    verdict = check(sent, [*delivered, last._replace(place=(last.place[0], last.place[1] + 1))])
    assert (verdict.broken(), verdict.copies) == ({}, 1)


@pytest.mark.parametrize(
    ("code", "outcome"), [(0, OK), (2, OK), (100, FAILED), (203, FAILED), (300, UNKNOWN), (400, FAILED), (501, OK)]
)
def test_the_hundreds_digit_of_a_code_says_what_became_of_the_message(code, outcome):
    assert outcome_of(code) == outcome
