"""Figures as tables show them: durations, sizes, counts and rates, each said in one way. JSON has the bare numbers."""

from typing import Any

UNITS_S = (("d", 86_400), ("h", 3_600), ("m", 60))


def duration(seconds: float | None) -> str:
    """A duration in the form in which options take an age: 3d, 2h, 10m, 42s, 0.3s."""
    if seconds is None:
        return "-"
    for unit, size in UNITS_S:
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}" if seconds >= 10 * size else f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"


def size(value: float | None) -> str:
    """Bytes as 512 B, 61.9 MiB."""
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return ""


def count(value: int | None) -> str:
    """A count as 1,234."""
    return "-" if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Messages per second: 0.4, 12, 1,234."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def lag_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row with `lag`, `in_flight` and `oldest_s`, as tables show it."""
    waits = row["lag"] or row["in_flight"]
    oldest = duration(row["oldest_s"]) if waits else "-"
    return {**row, "lag": count(row["lag"]), "in_flight": count(row["in_flight"]), "oldest": oldest}
