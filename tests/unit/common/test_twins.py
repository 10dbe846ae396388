import sys
from types import ModuleType

from common.twins import use_native


def test_references_are_used_when_they_are_asked_for(monkeypatch):
    monkeypatch.setenv("PENSTOCK_PURE", "1")
    assert not use_native("common", "names")


def test_references_are_used_when_one_native_module_of_a_package_is_missing(monkeypatch):
    monkeypatch.delenv("PENSTOCK_PURE", raising=False)
    assert use_native("common", "names")
    assert not use_native("common", "names", "_not_built")


def test_references_are_used_when_the_package_below_uses_them(monkeypatch):
    monkeypatch.delenv("PENSTOCK_PURE", raising=False)
    monkeypatch.setitem(sys.modules, "common._built", ModuleType("common._built"))
    assert use_native("common", "_built")
    assert not use_native("common", "_built", requires=False)
