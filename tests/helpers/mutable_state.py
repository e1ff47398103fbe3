"""Find what could hold state in modules: mutable values, unbounded caches, `global` statements.

The walk begins at the names of a module and of the classes defined in it, and follows tuples, mappings that are read
only, fields of frozen objects, defaults of functions and closures. What is not known to be immutable is a finding.
"""

import __future__

import ast
import ctypes
import datetime as dt
import decimal
import enum
import fractions
import functools
import inspect
import ipaddress
import logging
import operator
import pathlib
import re
import struct
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass

import msgspec


class _Example(typing.NamedTuple):
    first: int


@dataclass
class _Made:
    first: list[int] = field(default_factory=list)


class _Structure(ctypes.Structure):
    _fields_ = (("first", ctypes.c_int),)


_IMMUTABLE = (
    type(None),
    type(...),
    type(NotImplemented),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    dt.date,
    dt.timedelta,
    dt.timezone,
    decimal.Decimal,
    fractions.Fraction,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    pathlib.PurePath,
    re.Pattern,
    struct.Struct,
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    logging.Logger,  # of the standard library, which owns and locks it
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type(_Example.first),  # a field of a NamedTuple
    type(_Structure.first),  # a field of a structure of C
    type(inspect.signature(_Made).parameters["first"].default),  # a default that __init__ replaces
    __future__._Feature,
    msgspec.json.Decoder,
    msgspec.json.Encoder,
    msgspec.msgpack.Decoder,
    msgspec.msgpack.Encoder,
)
"""Instances of these types, and of their subclasses without fields of their own, cannot be changed."""

_TYPING = (
    types.GenericAlias,
    types.UnionType,
    typing.TypeVar,
    typing.ParamSpec,
    typing.NewType,
    type(typing.Any),
    type(typing.Optional),
    type(typing.List[int]),  # noqa: UP006  # the type of aliases of typing
    type(typing.Union[int, str]),  # noqa: UP007  # the same
    type(typing.Literal[1]),
)

_MACHINERY = frozenset({"_abc_impl", "_is_protocol", "_is_runtime_protocol", "_field_defaults", "_fields"})
"""Attributes that the standard library adds to classes."""

_METHODS = frozenset({"__init__", "__new__", "__call__", "__getitem__", "__missing__", "__post_init__"})
"""Special methods that are examined, for the defaults of their parameters."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that can be changed: where it is found, and what it is."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(slots=True)
class _Walk:
    package: str
    pure: frozenset[str]
    seen: set[int] = field(default_factory=set)
    kept: list[object] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def visit(self, value: object, place: str) -> None:
        if isinstance(value, _IMMUTABLE + _TYPING) or type(value) is object or id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.kept.append(value)  # so that no later object has the same id
        if isinstance(value, functools._lru_cache_wrapper):
            self._visit_cache(value, place)
        elif isinstance(value, type):
            if value.__module__.split(".")[0] == self.package:
                self._visit_class(value, place)
        elif isinstance(value, types.FunctionType):
            if value.__module__.split(".")[0] == self.package:
                self._visit_function(value, place)
        else:
            self._visit_object(value, place)

    def _visit_cache(self, cache: "functools._lru_cache_wrapper[object]", place: str) -> None:
        name = f"{cache.__module__}.{cache.__qualname__}"
        size = cache.cache_parameters()["maxsize"]
        if size is None:
            self.findings.append(Finding(place, "an unbounded cache"))
        elif name not in self.pure:
            self.findings.append(Finding(place, "a cache of a function that is not listed as pure"))

    def _visit_class(self, kind: type, place: str) -> None:
        for name, value in vars(kind).items():
            is_special = name.startswith("__") and name.endswith("__") and name not in _METHODS
            is_of_enum = issubclass(kind, enum.Enum) and name.startswith("_")
            if not (is_special or is_of_enum or name in _MACHINERY):
                self.visit(value, f"{kind.__module__}.{kind.__qualname__}.{name}")
        for name, value in getattr(kind, "_field_defaults", {}).items():  # of a NamedTuple
            self.visit(value, f"{kind.__module__}.{kind.__qualname__}.{name}")

    def _visit_function(self, function: types.FunctionType, place: str) -> None:
        for number, value in enumerate(function.__defaults__ or ()):
            self.visit(value, f"{place}(default {number})")
        for name, value in (function.__kwdefaults__ or {}).items():
            self.visit(value, f"{place}(default of {name})")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.visit(cell.cell_contents, f"{place}(closure {name})")
        for name, value in vars(function).items():
            self.visit(value, f"{place}.{name}")

    def _visit_object(self, value: object, place: str) -> None:
        parts = _parts(value)
        if parts is None:
            self.findings.append(Finding(place, f"a {type(value).__module__}.{type(value).__qualname__}"))
            return
        for name, part in parts:
            self.visit(part, f"{place}{name}")


def _parts(value: object) -> Iterable[tuple[str, object]] | None:
    """Return the parts of an immutable object that may be mutable themselves; None if the object is mutable."""
    for kind, parts in _PARTS:
        if isinstance(value, kind):
            return parts(value)
    if isinstance(value, msgspec.Struct) and value.__struct_config__.frozen:
        return [(f".{name}", getattr(value, name)) for name in value.__struct_fields__]
    if is_dataclass(value) and type(value).__dataclass_params__.frozen:
        return [(f".{one.name}", getattr(value, one.name)) for one in fields(value)]
    return None


_PARTS: tuple[tuple[object, Callable[[typing.Any], Iterable[tuple[str, object]]]], ...] = (
    (tuple, lambda value: [(f"[{number}]", part) for number, part in enumerate(value)]),
    (frozenset, lambda value: [("{…}", part) for part in value]),
    (
        types.MappingProxyType,
        lambda value: [pair for key, part in value.items() for pair in ((f"(key {key!r})", key), (f"[{key!r}]", part))],
    ),
    (enum.Enum, lambda value: [(".value", value.value)]),
    (staticmethod | classmethod | types.MethodType, lambda value: [("", value.__func__)]),
    (property, lambda value: [(".get", value.fget), (".set", value.fset), (".delete", value.fdel)]),
    (functools.cached_property, lambda value: [("", value.func)]),
    (
        functools.partial,
        lambda value: [("", value.func), ("", value.args), *((f"({key})", one) for key, one in value.keywords.items())],
    ),
)
"""Immutable types, and the parts of their instances."""


def mutable_state(modules: Iterable[types.ModuleType], package: str, pure: Iterable[str] = ()) -> list[Finding]:
    """Return what can be changed in the names of modules and in the attributes of the classes of a package.

    Args:
        modules: The modules.
        package: Classes and functions of other packages are not examined.
        pure: Full names of functions that may have a bounded cache.
    """
    walk = _Walk(package, frozenset(pure))
    for module in modules:
        for name, value in vars(module).items():
            if not (name.startswith("__") and name.endswith("__")):
                walk.visit(value, f"{module.__name__}.{name}")
    return walk.findings


def global_statements(text: str) -> list[int]:
    """Return the lines of `global` statements."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Global)]
