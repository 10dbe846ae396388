"""Fuzzes the walker: mutated frames of the corpus must give the same on both twins and on thriftpy2, in bounded time and memory.

    python -m tests.fuzz.fuzz_walk --runs 100000 --seed 1 [--corpus DIR] [--rewrite-corpus]

Prints one line with what was run and measured; a frame that breaks a rule is written to `crash-<seed>-<run>.bin` and the traceback
shown. The same seed gives the same frames. A frame found that way belongs into the corpus, and its rule into a unit test.
"""

import argparse
import random
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from common.wire import NATIVE, WireError, walk_pull, walk_send
from tests.fuzz.mutate import mutated
from tests.fuzz.seeds import SEEDS
from tests.unit.common.wire.agree import check_frame

CORPUS = Path(__file__).parent / "corpus" / "walk"
CPU_S_MAX = 0.050


@dataclass
class Measured:
    """What a fuzzing run saw."""

    frames: int = 0
    walked: int = 0
    bytes: int = 0
    cpu_s_max: float = 0.0
    rss_growth_kib: int = 0


def read_corpus(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.bin"))]


def write_corpus(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in SEEDS.items():
        (folder / f"{name}.bin").write_bytes(frame)


def walk_cpu_s(frame: bytes) -> float:
    """CPU of the walker in use, for whichever of the two calls the frame is nearer to being."""
    walk = walk_pull if frame[8:12] == b"pull" else walk_send
    started = time.process_time()
    try:
        walk(frame)
    except WireError:
        pass
    return time.process_time() - started


def fuzz(seeds: list[bytes], runs: int, seed: int, on_crash=None) -> Measured:
    """Check `runs` mutated frames. An assertion or any exception but WireError goes on to the caller, after on_crash(frame, run)."""
    rng = random.Random(seed)
    measured = Measured()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for run in range(runs):
        frame = mutated(seeds, rng)
        try:
            measured.walked += check_frame(frame)
            cpu_s = walk_cpu_s(frame)
            assert not NATIVE or cpu_s <= CPU_S_MAX, f"{cpu_s:.3f} s of CPU for {len(frame)} B"
        except Exception:
            if on_crash:
                on_crash(frame, run)
            raise
        measured.frames += 1
        measured.bytes += len(frame)
        measured.cpu_s_max = max(measured.cpu_s_max, cpu_s)
    measured.rss_growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--rewrite-corpus", action="store_true", help="write the frames of seeds.py there first")
    arguments = parser.parse_args()
    if arguments.rewrite_corpus:
        write_corpus(arguments.corpus)

    def keep(frame: bytes, run: int) -> None:
        Path(f"crash-{arguments.seed}-{run}.bin").write_bytes(frame)

    found = fuzz(read_corpus(arguments.corpus), arguments.runs, arguments.seed, keep)
    print(
        f"native={NATIVE} seed={arguments.seed} frames={found.frames} walked={found.walked} bytes={found.bytes} "
        f"cpu_ms_max={found.cpu_s_max * 1e3:.2f} rss_growth_kib={found.rss_growth_kib}"
    )


if __name__ == "__main__":
    main()
