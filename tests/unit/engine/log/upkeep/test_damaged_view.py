"""A view whose damage is met in the middle of a scan is set aside, and built again."""

from engine.config import LogConfig
from engine.env.real import RealEnv
from engine.errors import StoreDamagedError
from engine.log import open_log
from engine.log.upkeep.recovery import Recovery


def test_a_scan_that_is_open_when_damage_is_met_does_not_keep_the_view_from_being_built_again(tmp_path, monkeypatch):
    log = open_log(RealEnv(), str(tmp_path), LogConfig())
    log.create_topics([("orders", 3)])
    log.close()
    run, starts = Recovery.run, []

    def damaged_once(self):
        starts.append(self)
        if len(starts) > 1:
            return run(self)
        self._view.store.write([(b"a", b"1"), (b"b", b"2")])
        scan = self._view.store.scan(b"a", b"c")
        next(scan)
        raise StoreDamagedError(f"{tmp_path}/state", 0, 0, "a block does not verify")

    monkeypatch.setattr(Recovery, "run", damaged_once)
    log = open_log(RealEnv(), str(tmp_path), LogConfig())
    assert [topic.name for topic in log.topics()] == ["orders"] and len(starts) == 2
    log.close()
