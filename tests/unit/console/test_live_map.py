"""The stream that tells a page of the map that its part has changed."""

import pytest

from console.installation.latest import Latest
from console.pages import map as map_pages
from console.parts import MAPS_PER_ACCOUNT_MAX
from tests.unit.console.consoles import text_of


@pytest.fixture
def states(console, monkeypatch):
    """What the brokers tell, which the test changes."""
    told: list[str] = []
    monkeypatch.setattr(map_pages, "PAUSE_S", 0.0)
    console.with_parts(broker_states=Latest(lambda: list(told), 0.0, console.clock.monotonic_s))
    return told


def test_a_change_is_told_once_and_the_stream_ends_with_its_session(console, states):
    viewer = console.as_role("viewer")
    answer = viewer.get("/map/stream")
    assert answer.mimetype == "text/event-stream" and answer.status_code == 200
    events = (each.decode() for each in answer.response)
    assert "event: open" in next(events)
    assert "event: changed" in next(events) and next(events).startswith(": as before")
    states.append("another")
    assert "event: changed" in next(events)
    assert console.parts.map_places.count == 1
    console.parts.sessions.close(viewer.session.token)
    rest = list(events)
    assert "Your session has ended" in rest[-1] and not any("changed" in each for each in rest)
    answer.close()
    assert console.parts.map_places.count == 0


def test_maps_are_bounded_by_person_and_the_page_works_without_a_stream(console, states):
    viewer = console.as_role("viewer", "vera")
    for _ in range(MAPS_PER_ACCOUNT_MAX):
        assert console.parts.map_places.take("vera") == ""
    answer = viewer.get("/map/stream")
    assert answer.status_code == 429 and "live maps open: close one first" in text_of(answer)
    assert "Broker groups" in text_of(viewer.get("/map")) and viewer.get("/map/live").status_code == 200
