"""Native code and Python agree on every constant of the link and of stored batches."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import engine.link
from engine.link import codes, operations
from engine.log import format as log_format

CONSTANTS = Path(engine.link.__file__).parent / "constants.pxd"
DECLARED = {
    name: int(value, 0)
    for name, value in re.findall(r"^    ([A-Z][A-Z0-9_]*) = (0x[0-9a-fA-F]+|\d+)\b", CONSTANTS.read_text(), re.M)
}
MODULES = [
    import_module(f"engine.link.{module.name}")
    for module in pkgutil.iter_modules(engine.link.__path__)
    if module.name not in ("layout", "_pull_parts")
]


def namesakes(name: str) -> list[int]:
    """The values of a constant in Python, by the naming rules of constants.pxd."""
    for prefix, module in (("OP_", operations), ("CODE_", codes)):
        if name.startswith(prefix):
            return [getattr(module, name.removeprefix(prefix))]
    return [getattr(module, name) for module in (*MODULES, log_format) if hasattr(module, name)]


def test_the_file_is_read_whole():
    text = CONSTANTS.read_text()
    assert len(DECLARED) == text.count(" = ") > 50


@pytest.mark.parametrize("name", DECLARED)
def test_a_constant_of_native_code_has_its_value_in_python(name):
    found = namesakes(name)
    assert found, f"{name} has no namesake in engine/link"
    assert set(found) == {DECLARED[name]}


def test_structures_have_the_sizes_that_native_code_uses():
    for name, structure in (
        ("FRAME_HEADER_SIZE", "frame.HEADER"), ("APPEND_HEAD_SIZE", "append.APPEND_HEAD"),
        ("APPEND_RESULT_SIZE", "append.APPEND_RESULT"), ("BATCH_HEADER_SIZE", "batch.BATCH_HEADER"),
        ("PIECE_SIZE", "pieces.PIECE"), ("ACK_SIZE", "acknowledgement.ACK"),
    ):  # fmt: skip
        module, attribute = structure.split(".")
        assert getattr(import_module(f"engine.link.{module}"), attribute).size == DECLARED[name], name
