"""No state in modules: whatever a name of a module or an attribute of a class refers to, nothing can change it."""

import asyncio
import contextvars
import enum
import functools
import importlib
import re
import sys
import threading
import types
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import pytest

from exporter.daemon.sources import metrics
from tests.helpers.mutable_state import global_statements, mutable_state
from tests.helpers.paths import ROOT

MODULES = sorted(path for path in (ROOT / "exporter").rglob("*.py") if path.name != "__main__.py")

DECLARED = "made from a declared schema: one object for each, as metrics are compared by identity"

PURE = {
    "exporter.linux.mad.subnet._generations_in": "of 10 bits: as many entries as there are arguments",
    "exporter.linux.mad.subnet._lanes_in": "of a byte: as many entries as there are arguments",
    "exporter.meaning.ports.bursts._histogram_schema": DECLARED,
    "exporter.meaning.ports.congestion_ratios._metric": DECLARED,
    "exporter.meaning.ports.congestion_ratios._ratios_of": DECLARED,
    "exporter.meaning.ports.imbalance._asymmetry_metric": DECLARED,
    "exporter.meaning.ports.imbalance._group_schema": DECLARED,
    "exporter.meaning.ports.rates._derived": DECLARED,
    "exporter.meaning.ports.rates._saturated_schema": DECLARED,
    "exporter.meaning.training.job_kinds.name_of": "of names of jobs: the least recently used goes first",
    "exporter.meaning.training.jobs._output_schemas": DECLARED,
    "exporter.sources.rdma.counter_files.counter_alternatives": "of the declared statistics of drivers",
    "exporter.sources.switch.merge._without_resets": DECLARED,
    "exporter.sources.switch.port_kinds.kind_of": "of names that are bounded where they are read",
    "exporter.sources.switch.readers.snmp.profile.builtin": "without arguments: the profiles of the package",
}
"""Functions that may keep results, a bounded number of them, and why: they depend on declarations only."""

JOB = {
    "exporter.hook.fabric_timing._hook": "the hook is one file that a job imports: its module is the one sender",
}
"""State by contract, and why."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_no_module_holds_anything_that_can_be_changed():
    found = mutable_state(map(importlib.import_module, map(name_of, MODULES)), "exporter", PURE)
    unexpected = [str(one) for one in found if one.place not in JOB]
    assert not unexpected, "\n".join(unexpected)
    assert {one.place for one in found} == JOB.keys(), "a reason is listed for what is no longer there"


def test_every_pure_function_keeps_a_bounded_number_of_results():
    for name, reason in PURE.items():
        module, _, function = name.rpartition(".")
        assert getattr(importlib.import_module(module), function).cache_info().maxsize, name
        assert reason
    assert PURE


def test_results_of_declared_schemas_are_never_dropped():
    """Metrics are compared by identity: the caches are larger than what all declarations can ask for."""
    metrics()
    caches = {
        name: getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]).cache_info()
        for name, reason in PURE.items()
        if reason is DECLARED
    }
    assert any(info.currsize for info in caches.values())
    assert {name for name, info in caches.items() if info.currsize > info.maxsize / 2} == set()


def test_no_function_changes_a_name_of_its_module():
    found = [f"{name_of(path)}:{line}" for path in MODULES for line in global_statements(path.read_text("utf-8"))]
    assert not found


class _Plain:
    def __init__(self):
        self.changed = 0


class _Slots:
    __slots__ = ("changed",)


@dataclass
class _Open:
    changed: int = 0


@dataclass(frozen=True)
class _Frozen:
    inner: object = None


class _OpenStruct(msgspec.Struct):
    changed: int = 0


class _FrozenStruct(msgspec.Struct, frozen=True):
    inner: object = None


class _Tuple(NamedTuple):
    inner: object


class _WithField(NamedTuple):
    found: object = []  # what is looked for


class _Colour(enum.Enum):
    RED = "red"


def _with_default(_found=[]):  # noqa: B006  # what is looked for
    return None


def _with_closure():
    found = []
    return lambda: found


def _with_attribute():
    return None


_with_attribute.found = {}


class _WithAttribute:
    found = []  # noqa: RUF012  # what is looked for


@functools.cache
def _unbounded(_):
    return None


@functools.lru_cache(maxsize=2)
def _bounded(_):
    return None


MUTABLE = {
    "a builtins.list": [],
    "a builtins.dict": {},
    "a builtins.set": set(),
    "a builtins.bytearray": bytearray(),
    "a collections.deque": deque(),
    "a collections.defaultdict": defaultdict(list),
    "a collections.Counter": Counter(),
    "a weakref.WeakKeyDictionary": WeakKeyDictionary(),
    "a asyncio.locks.Lock": asyncio.Lock(),
    "a asyncio.locks.Event": asyncio.Event(),
    "a _thread.lock": threading.Lock(),
    "a _contextvars.ContextVar": contextvars.ContextVar("found", default=[]),  # noqa: B039  # what is looked for
    "a types.SimpleNamespace": types.SimpleNamespace(),
    "a sample._Plain": _Plain(),
    "a sample._Slots": _Slots(),
    "a sample._Open": _Open(),
    "a sample._OpenStruct": _OpenStruct(),
    "an unbounded cache": _unbounded,
    "a cache of a function that is not listed as pure": _bounded,
}


def sample(**names):
    """Return a module with these names; the classes and functions of this test are of its package."""
    module = types.ModuleType("sample")
    vars(module).update(names)
    return module


@pytest.fixture(autouse=True)
def _of_sample(monkeypatch):
    own = vars(sys.modules[__name__])
    for name, value in own.items():
        if re.match("_[A-Za-z]", name) and isinstance(value, type | types.FunctionType | type(_bounded)):
            monkeypatch.setattr(value, "__module__", "sample")


@pytest.mark.parametrize("what", MUTABLE)
@pytest.mark.parametrize(
    "place",
    [
        lambda value: value,
        lambda value: (1, (value,)),
        lambda value: types.MappingProxyType({"key": value}),
        lambda value: _Frozen(_Tuple(value)),
        _FrozenStruct,
        lambda value: functools.partial(print, value),
        lambda value: property(functools.partial(print, end=value)),
    ],
    ids=["itself", "tuple", "mapping", "frozen", "struct", "partial", "property"],
)
def test_what_can_be_changed_is_found_wherever_it_is(what, place):
    (found,) = mutable_state([sample(it=place(MUTABLE[what]))], "sample")
    assert (found.place.startswith("sample.it"), found.what) == (True, what)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (_with_default, "sample.it(default 0)"),
        (_with_closure(), "sample.it(closure found)"),
        (_with_attribute, "sample.it.found"),
        (_WithAttribute, "sample._WithAttribute.found"),
        (_WithField, "sample._WithField.found"),
    ],
)
def test_what_functions_and_classes_hold_is_found(value, place):
    value.__module__ = "sample"
    (found,) = mutable_state([sample(it=value)], "sample")
    assert found.place == place


def test_what_cannot_be_changed_is_no_finding():
    values = {
        "numbers": (1, 2.0, b"bytes", "text", frozenset({1}), range(3), None),
        "table": types.MappingProxyType({"key": (1, types.MappingProxyType({}))}),
        "frozen": _Frozen(_FrozenStruct(_Tuple(re.compile("x")))),
        "member": _Colour.RED,
        "kind": _Open,
        "folder": Path("/"),
        "alias": dict[str, list[int]],
        "bounded": _bounded,
        "function": sample,
        "of_others": importlib,
    }
    assert mutable_state([sample(**values)], "sample", {"sample._bounded"}) == []


def test_global_statements_are_found():
    assert global_statements("x = 0\ndef change():\n    global x\n    x = 1\n") == [3]
