"""Find every regular expression of a package, and inputs on which a bad one is slow.

Patterns are found in two ways, whose union is complete: objects that the names of modules, classes and functions refer
to, and calls of the module `re` in the source, evaluated in their module. A call whose pattern is made from arguments
cannot be evaluated: it is a place, for which the caller needs a reason.
"""

import ast
import importlib
import re
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

_CALLS = {"compile": 1, "match": 2, "search": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4}
"""Functions of `re`, and the position of their flags."""

UNITS = ["0", "1", "a", "f", "A", "G", "_", "é", "1.", "1 ", " 1", "a ", "1a", "a1", "1:", "1,", "1/", "a-", "1-", "/a"]
UNITS += ["[1", "[1]", "(1", "{a", '"a"', '", a="', 'a="', "::", "ab:", "a.", "\t ", "\r\n", "\\"]
UNITS += list(" \t\n-/:.,;=()[]{}<>#\"'|+*&%")
"""Repeated texts: classes of characters, and separators between them."""

_CUTS = 8
"""Places at which a matching text is cut, to repeat what is there."""


@dataclass
class Found:
    """Patterns by the place where they are first, and places whose pattern is made from arguments."""

    patterns: dict[str, re.Pattern] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    def add(self, place: str, pattern: re.Pattern) -> None:
        if pattern not in self.patterns.values():
            self.patterns[f"{place} {pattern.pattern!r}"] = pattern


def patterns_of(paths: Mapping[str, Path]) -> Found:
    """Return the patterns of modules, which are imported, by name and file."""
    found = Found()
    for name, path in paths.items():
        module = importlib.import_module(name)
        package = name.partition(".")[0]
        for attribute, value in vars(module).items():
            for pattern in _inside(value, package, set()):
                found.add(f"{name}.{attribute}", pattern)
        _evaluate_calls(name, ast.parse(path.read_text("utf-8")), vars(module), found)
    return found


def imports_of_names(source: str) -> list[int]:
    """Return the lines that import `re` in a way that its calls are not found."""
    nodes = ast.walk(ast.parse(source))
    return [
        node.lineno
        for node in nodes
        if (isinstance(node, ast.ImportFrom) and node.module == "re")
        or (isinstance(node, ast.Import) and any(one.name == "re" and one.asname for one in node.names))
    ]


def _inside(value: object, package: str, seen: set[int]) -> Iterator[re.Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    if id(value) in seen:
        return
    seen.add(id(value))
    inner: list[object] = []
    if isinstance(value, tuple | list | set | frozenset):
        inner += value
    elif isinstance(value, Mapping):
        inner += [*value, *value.values()]
    elif isinstance(value, types.FunctionType | type) and value.__module__.partition(".")[0] == package:
        inner += vars(value).values()
        inner += getattr(value, "__defaults__", None) or ()
        inner += [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    elif is_dataclass(value) and not isinstance(value, type):
        inner += [getattr(value, one.name) for one in fields(value)]
    for one in inner:
        yield from _inside(one, package, seen)


def _evaluate_calls(name: str, tree: ast.Module, names: Mapping[str, object], found: Found) -> None:
    in_functions = {
        inner: function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(function)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CALLS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
            continue
        flags = next((one.value for one in node.keywords if one.arg == "flags"), None)
        position = _CALLS[node.func.attr]
        flags = node.args[position] if flags is None and len(node.args) > position else flags
        place = f"{name}.{in_functions.get(node, node.lineno)}"
        try:
            pattern = re.compile(_value(node.args[0], names), 0 if flags is None else _value(flags, names))
        except NameError:  # of a name of the function, or of a comprehension: those of the module are found as objects
            if node in in_functions:
                found.made.add(place)
        else:
            found.add(place, pattern)


def _value(node: ast.expr, names: Mapping[str, object]) -> object:
    return eval(compile(ast.Expression(node), "pattern", "eval"), dict(names))


def matching_texts(pattern: re.Pattern) -> list[str]:
    """Return texts that a pattern matches, the same ones each time."""
    texts: list[str] = []

    @settings(
        max_examples=2,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.from_regex(pattern))
    def collect(text):
        texts.append(text.decode("latin-1") if isinstance(text, bytes) else text)

    with suppress(Unsatisfiable):  # of a pattern that looks ahead or behind
        collect()
    return [text[:200] for text in dict.fromkeys(texts)]


def hostile_texts(pattern: re.Pattern) -> Iterator[tuple[str, str, str]]:
    """Yield the beginning, the repeated part and the end of texts on which a pattern may take long."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    words = re.findall(r"[A-Za-z]{2,}", source)
    for unit in dict.fromkeys([*UNITS, *words, *(f"{word}{end}" for word in words[:8] for end in "1 ")]):
        yield "", unit, "\0"
        yield "1", unit, "\0"
        yield "", unit, ""
    for text in matching_texts(pattern):
        for cut in {len(text) * step // _CUTS for step in range(1, _CUTS + 1)} - {0}:
            for unit in {text[cut - 1], text[max(cut - 2, 0) : cut], " "}:
                yield text[:cut], unit, "\0"
