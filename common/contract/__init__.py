"""The contract of thrift/*.thrift as Python objects, and the encoding of calls and replies.

The enumerations are read from the files by their text, in a millisecond. All else is in `calls`, which loads thriftpy2,
and is imported with the first of its names: a command that sends and pulls nothing does not wait for it.
"""

import re
from collections.abc import Iterator
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common.contract.calls import *  # noqa: F403

_COMMENT = re.compile(r"//.*")
_ENUMERATION = re.compile(r"^enum (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"(\w+) = (\d+)")


def thrift_folder() -> Path:
    """The folder of the .thrift files: in the source tree, or the `penstock_thrift` package of an installation."""
    source = Path(__file__).parents[2] / "thrift"
    if (source / "message.thrift").is_file():
        return source
    # A package without __init__.py: importlib gives no plain path for the folder, but does for a file in it.
    return Path(str(resources.files("penstock_thrift") / "message.thrift")).parent


def _enumerations(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the enumerations of a file: classes of plain numbers, with thriftpy2's two tables of names."""
    text = _COMMENT.sub("", (thrift_folder() / f"{name}.thrift").read_text())
    for title, members in _ENUMERATION.findall(text):
        values = {each: int(number) for each, number in _MEMBER.findall(members)}
        names = {number: each for each, number in values.items()}
        yield title, type(title, (), {**values, "_NAMES_TO_VALUES": values, "_VALUES_TO_NAMES": names})


_found = dict(each for name in ("message", "producer", "consumer") for each in _enumerations(name))
Code: Any = _found["Code"]
Durability: Any = _found["Durability"]
Operation: Any = _found["Operation"]
Verdict: Any = _found["Verdict"]


def __getattr__(name: str) -> Any:
    return getattr(import_module("common.contract.calls"), name)
