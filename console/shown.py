"""Values as pages show them: times, numbers with units, hostile text, hexadecimal dumps."""

import re
from datetime import UTC, datetime

from markupsafe import Markup, escape

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Controls but tab and newline, and the marks that change the direction of text: they can hide what a text says.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
DUMP_WIDTH = 16


def visible(text: object) -> str:
    """The text with characters that cannot be seen, or that turn others around, as code points."""
    return UNSEEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", str(text))


def size(count: float | None) -> str:
    """Bytes with a unit."""
    if count is None:
        return "unknown"
    value, unit = float(count), 0
    while value >= 1024 and unit < len(UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.0f} {UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:,.1f} {UNITS[unit]}"


def number(value: int | None) -> str:
    """A whole number with separators."""
    return "unknown" if value is None else f"{value:,}"


def when(at_ms: int | None) -> Markup:
    """A time in UTC, which the page's script shows in the viewer's zone."""
    if not at_ms:
        return Markup("–")
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return Markup(escape(f"{at_ms:,} ms"))
    text = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{0}" title="{1}">{1}</time>').format(f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z", text)


def duration(ms: int) -> str:
    """A time span in its largest whole unit."""
    for unit, length in (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1_000)):
        if ms >= length and ms % length == 0:
            return f"{ms // length:,} {unit if ms > length else unit[:-1]}"
    return f"{ms:,} ms"


def dump(data: bytes) -> str:
    """Bytes as lines of offset, hexadecimal digits and printable ASCII."""
    lines = []
    for at in range(0, len(data), DUMP_WIDTH):
        row = data[at : at + DUMP_WIDTH]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<{3 * DUMP_WIDTH}} {text}")
    return "\n".join(lines)


def label(name: str) -> str:
    """A setting's name in words; its unit is shown with its value."""
    return name.replace("_ms", "").replace("_", " ")


def setting(name: str, value: object) -> str:
    """A setting's value with its unit, which ends its name."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{part}={each}" for part, each in value.items()) or "none"
    if isinstance(value, int):
        if name == "delay_ms_max" and value == 1:
            return "no delayed messages"
        if "bytes" in name:
            return "no limit" if value == 0 and "body" not in name else size(value)
        if name.endswith("_ms") or "_ms_" in name:
            return "default" if value == 0 else duration(value)
        return "no limit" if value == 0 else f"{value:,}"
    return str(value) or "none"


def amount(value: float, unit: str) -> str:
    """A measured value with its unit."""
    if unit == "bytes":
        return size(value)
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:,.1f} s" if value < 120 else f"{value / 60:,.0f} min"
    shown = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"
    return f"{shown} {unit}".rstrip()
