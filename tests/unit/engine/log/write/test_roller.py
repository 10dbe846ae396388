"""The next segment is made once, however often it is asked for before it is there."""

from machine import Machine

from engine.env.simulated import SimulatedEnv


def test_a_segment_that_is_being_made_is_not_made_again(form, monkeypatch):
    machine = Machine(form, SimulatedEnv(), "/data")
    roller, tasks = machine.log.writer.roller, []
    monkeypatch.setattr(roller._preparer, "submit", tasks.append)
    roller.prepared.close()
    roller.prepared, roller.fault = None, "disk full"
    for _ in range(3):
        roller.retry(machine.log.appender, 1 << 40)
    assert len(tasks) == 1
    tasks.pop()()
    made = roller.prepared
    roller.retry(machine.log.appender, 1 << 40)
    assert made is not None and roller.fault == "" and tasks == []
    machine.log.close()
