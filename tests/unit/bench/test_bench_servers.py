"""CPU and memory of processes, read from a /proc of our own making and from the real one."""

import os

from bench.servers import TICKS_PER_S, Sampler, cpu_seconds, rss_bytes


def write(proc, pid, ticks, rss_kib):
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(
        f"{pid} (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 {ticks} {ticks // 2} 0 0 20 0 3 0 100 1 1\n"
    )
    (folder / "status").write_text(f"Name:\ta\nVmPeak:\t 9 kB\nVmRSS:\t  {rss_kib} kB\n")


def test_cpu_of_the_window_is_the_difference_and_memory_that_of_its_end(tmp_path):
    write(tmp_path, 7, 100, 1000)
    sampler = Sampler({"engine": 7}, proc=tmp_path)
    sampler.on_window(True)
    write(tmp_path, 7, 300, 2000)
    sampler.on_window(False)
    (engine,) = sampler.uses
    assert (engine.name, engine.cpu_s, engine.rss_bytes) == ("engine", 300 / TICKS_PER_S, 2000 * 1024)
    assert sampler.generator is not None and sampler.generator.cpu_s >= 0


def test_a_process_that_is_gone_counts_as_nothing(tmp_path):
    sampler = Sampler({"engine": 12}, proc=tmp_path)
    sampler.on_window(True)
    sampler.on_window(False)
    assert (sampler.uses[0].cpu_s, sampler.uses[0].rss_bytes) == (0, 0)


def test_the_running_process_is_readable(tmp_path):
    from pathlib import Path

    own = Path("/proc") / str(os.getpid())
    assert cpu_seconds(own) > 0
    assert rss_bytes(own) > 1 << 20
