"""Plots of the traffic report."""

import re

import pytest

from pipeline.traffic.plots import LABEL_WIDE, WIDTH, TimeSeries, time_plot

LABEL = re.compile(r'<text x="([\d.]+)" y="201.0" text-anchor="(\w+)">')


@pytest.mark.parametrize("minutes", [2, 3, 61, 1440, 7 * 1440])
def test_labels_of_times_stay_within_the_plot(minutes):
    times = range(0, minutes * 60, 60)
    plot = time_plot(times, 60, [TimeSeries("rate", [1.0] * len(times))], "")
    labels = [(float(x), anchor) for x, anchor in LABEL.findall(plot)]
    assert len(labels) >= 2
    assert all(x + (LABEL_WIDE / 2 if anchor == "middle" else 0) <= WIDTH for x, anchor in labels)
