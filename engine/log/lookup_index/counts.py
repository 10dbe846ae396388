"""Counts of the maker of lookup files since the start: written by its thread alone, read by metrics."""

from dataclasses import dataclass


@dataclass
class MakerCounts:
    """`files`: lookup files made; `runs`: partial indexes made; bytes read and written for both."""

    files: int = 0
    runs: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    damage: int = 0
