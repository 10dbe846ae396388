"""Quantiles and the histogram of gaps."""

from tests.fault.gaps import histogram, quantile, summary


def test_a_quantile_is_a_value_that_was_seen():
    values = [each / 1000 for each in range(1, 201)]
    assert [quantile(values, share) for share in (0.5, 0.99, 1)] == [0.1, 0.198, 0.2]
    assert quantile([3.0], 0.5) == quantile([3.0], 0.99) == 3.0


def test_the_histogram_has_each_gap_in_one_range_and_ends_with_the_last():
    gaps = [0.010, 0.024, 0.025, 0.060, 0.060, 0.060, 0.120, 9.0]
    lines = [line.split(" ms")[1].split() for line in histogram(gaps).splitlines()]
    assert [int(line[0]) for line in lines] == [2, 1, 3, 1, 0, 0, 0, 0, 0, 0, 1]
    assert histogram(gaps[:3]).splitlines()[-1].startswith("      25 to 50 ms    1 #")


def test_the_summary_names_the_worst():
    assert summary([0.1, 0.2, 1.5]) == "3 gaps: p50 200 ms, p90 1500 ms, p99 1500 ms, worst 1500 ms"
