"""What making files of names has done since the start; written by the maker's thread alone, read by metrics."""

from dataclasses import dataclass


@dataclass
class MakerCounts:
    """`files` and `runs` that were made, and what for them."""

    files: int = 0
    runs: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    damage: int = 0
