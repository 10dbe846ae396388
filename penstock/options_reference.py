"""The reference page of all options of `up` and of the processes: `python -m penstock.options_reference > docs/options.md`."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from common.process_options import variable
from penstock.commands.settings_file import PROCESSES, options_of

HEAD = """# Options of `up` and of the processes

This page is generated from the options themselves (`python -m penstock.options_reference > docs/options.md`); a test
holds it to them.

An option may be given in three ways. The first of them wins:

1. on the command line: `penstock engine --retention-hours 24`;
2. in the environment: `PENSTOCK_ENGINE_RETENTION_HOURS=24`;
3. in a file that `--settings FILE` or `PENSTOCK_SETTINGS` names, with a table per process. Its keys are the options
   without dashes:

```toml
[up]
groups = 2

[engine]
retention-hours = 24
disk-percents = [80, 85, 90]

[producer-proxy]
connections-max = 20000
buffer-redis-accept = ["everysec"]
```

`penstock up --settings FILE` takes its own options from `[up]`, and hands the file to its processes. It refuses options
that it gives the processes itself, such as `listen`. `penstock config check FILE` names all faults at once, and
`penstock config show --settings FILE` the options that are not left to their defaults, and where each comes from.
Units are in the names. A flag is `true` or `false`. A list is an option several times, or a value with commas.
"""
TITLES = {"up": "penstock up", **{name: f"penstock {name}" for name in PROCESSES}}


def page() -> str:
    """The page's text."""
    with ThreadPoolExecutor(len(TITLES)) as pool:
        return HEAD + "".join(map(section, TITLES, pool.map(options_of, TITLES)))


def section(name: str, options: list[dict[str, Any]]) -> str:
    """One table of the file."""
    lines = ["", f"## `[{name}]`", "", f"Of `{TITLES[name]}`; {variables(name, options)}.", ""]
    lines += ["| option | value | default | meaning |", "|---|---|---|---|"]
    for option in options:
        default = "required" if option["required"] else option["default"] or "unset"
        cells = [f"`{option['name']}`", f"`{option['value']}`", default, option["text"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def variables(name: str, options: list[dict[str, Any]]) -> str:
    """How the variables are named, and those with names of their own."""
    like = variable(name, options[1]["name"])
    own = [
        f"`{each['variable']}` for `{each['name']}`"
        for each in options
        if each.get("variable", "") not in ("", variable(name, each["name"]))
    ]
    return f"variables are named like `{like}`{', but ' + ', '.join(own) if own else ''}"


def main() -> None:
    print(page(), end="")


if __name__ == "__main__":
    main()
