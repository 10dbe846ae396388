"""The examples, on the real data that PySpark ships, against a real `penstock up`."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from pipeline.examples.enrichment import enrich
from pipeline.examples.exact_copy import copy
from pipeline.examples.sessions import sessions
from pipeline.examples.setting import LICENSES, RATINGS, WORDS, ExampleSetting, send_ratings, send_texts
from pipeline.examples.upserts import upserts
from pipeline.examples.word_count import word_count

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def setting(penstock_up, credential, tmp_path_factory):
    penstock_up.run("topic", "create", "ratings", "ratings-copy", "lines", "scored", "--queues", "2")
    producer, consumer = ("{}:{}".format(*each) for each in (penstock_up.producer, penstock_up.consumer))
    return ExampleSetting(producer, consumer, str(credential), str(tmp_path_factory.mktemp("examples")))


@pytest.fixture(scope="module")
def rated(spark, setting):
    """Lines of the file; each is sent twice and stored once."""
    lines = [line.split("::") for line in RATINGS.read_text().split()]
    assert send_ratings(spark, setting, "ratings") == send_ratings(spark, setting, "ratings") == len(lines)
    return lines


@pytest.fixture(scope="module")
def lines(spark, setting):
    texts = [
        line
        for path in sorted(Path(LICENSES).iterdir())
        for line in re.split("\r\n|\n|\r", path.read_text())
        if line.strip(" ")
    ]
    assert send_texts(spark, setting, "lines") == len(texts)
    return texts


def test_words_are_counted(spark, setting, lines):
    expected = Counter(word for line in lines for word in re.split("[^a-z]+", line.lower()) if word)
    assert {row["word"]: row["count"] for row in word_count(spark, setting, "lines").collect()} == expected


def test_sessions_end_after_half_an_hour(spark, setting, rated):
    times = {}
    for user, _, _, rated_s in rated:
        times.setdefault(int(user), []).append(int(rated_s))
    expected = Counter()
    for user, own in times.items():
        own.sort()
        number = 0
        for before, at in zip([own[0], *own], own, strict=False):
            number += at - before >= 1800
            expected[user, number] += 1
    found = sessions(spark, setting, "ratings").collect()
    assert sorted((row["user"], row["movies"]) for row in found) == sorted(
        (user, count) for (user, _), count in expected.items()
    )


def test_upserts_keep_one_row_per_user_and_movie(spark, setting, rated):
    pairs = {(int(user), int(movie)): float(rating) for user, movie, rating, _ in rated}
    for _ in range(2):
        found = upserts(spark, setting, "ratings").collect()
        assert {(row["user"], row["movie"]): row["rating"] for row in found} == pairs
        assert len(found) == len(pairs)


def test_lines_get_the_sentiment_of_their_words(spark, setting, lines):
    sentiments = {
        word: int(value) for word, _, value in (line.partition("\t") for line in WORDS.read_text().splitlines())
    }
    enrich(spark, setting, "lines", "scored")
    rows = spark.read.format("penstock").options(**setting.read("scored", columns="body")).load().collect()
    found = Counter((each["line"], each["score"]) for each in (json.loads(bytes(row.body)) for row in rows))
    assert found == Counter(
        (line, sum(sentiments.get(word, 0) for word in re.split("[^a-z]+", line.lower()))) for line in lines
    )


def test_a_copy_has_each_message_once(spark, setting, rated):
    copy(spark, setting, "ratings", "ratings-copy")
    copy(spark, setting, "ratings", "ratings-copy")
    rows = spark.read.format("penstock").options(**setting.read("ratings-copy", columns="body")).load().collect()
    assert len(rows) == len({bytes(row.body) for row in rows}) == len({(user, movie) for user, movie, *_ in rated})
