"""Times without an acknowledged message, over many switches."""

BOUNDS_MS = (25, 50, 100, 200, 300, 500, 750, 1000, 1500, 2500)
BAR = 50


def quantile(values: list[float], share: float) -> float:
    """The smallest value that is not below this share of all."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def summary(gaps_s: list[float]) -> str:
    figures = ", ".join(f"p{share * 100:g} {quantile(gaps_s, share) * 1000:.0f} ms" for share in (0.5, 0.9, 0.99))
    return f"{len(gaps_s)} gaps: {figures}, worst {max(gaps_s) * 1000:.0f} ms"


def histogram(gaps_s: list[float]) -> str:
    """One line per range of milliseconds, up to the last one that has any."""
    lines, below_ms = [], 0
    for bound_ms in (*BOUNDS_MS, float("inf")):
        count = sum(below_ms <= each * 1000 < bound_ms for each in gaps_s)
        name = f"{below_ms:,} to {bound_ms:,} ms" if bound_ms < float("inf") else f"from {below_ms:,} ms"
        lines.append(f"{name:>17} {count:4} {'#' * -(-count * BAR // len(gaps_s))}".rstrip())
        below_ms = bound_ms
        if all(each * 1000 < bound_ms for each in gaps_s):
            break
    return "\n".join(lines)
