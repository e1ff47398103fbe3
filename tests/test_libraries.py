"""Libraries are used through their public interface: what begins with an underscore may change in any release."""

import ast
import importlib
import inspect
import sys

import pytest

from tests.helpers.paths import ROOT

MODULES = sorted((ROOT / "exporter").rglob("*.py"))
OPTIONAL = {"torch"}
"""Libraries of a training job, which the hook gets from it."""

EXTRAS = {"grpc": "exporter/sources/pods/pod_resources_client.py"}
"""Libraries of extras, and the one module that imports each, inside functions: an exporter without the extra starts."""


def is_library(module: str) -> bool:
    return module.partition(".")[0] not in sys.stdlib_module_names | {"exporter", "__future__"}


def private_imports(tree: ast.AST) -> list[str]:
    """List the imported names of libraries with a step that begins with an underscore."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{one.name}" for one in node.names]
    return [name for name in names if is_library(name) and any(step.startswith("_") for step in name.split("."))]


def own_names(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Return the private attributes of self that a class uses, and those that it defines."""
    used, defined = set(), {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) in {"self", "super()"}:
            used.add(one.attr)
            if isinstance(one.ctx, ast.Store):
                defined.add(one.attr)
    return {name for name in used if name.startswith("_") and not name.startswith("__")}, defined


def private_members(tree: ast.AST, bases: dict[str, list[type]]) -> list[str]:
    """List the private members that the classes of a module share with their bases in libraries.

    Args:
        tree: The module.
        bases: Bases in libraries by the name of a class.
    """
    wrong = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and bases.get(node.name):
            used, defined = own_names(node)
            inherited = {name for name in defined | used for base in bases[node.name] if hasattr(base, name)}
            wrong += [f"{node.name}.{name}" for name in (inherited | used - defined) if not name.startswith("__")]
    return sorted(name for name in wrong if name.rpartition(".")[2].startswith("_"))


def library_bases(module: object) -> dict[str, list[type]]:
    """Return the bases in libraries of the classes that a module defines; those of a mixin are those of its users."""
    classes = [one for _, one in inspect.getmembers(module, inspect.isclass) if one.__module__ == module.__name__]
    found: dict[str, list[type]] = {}
    for one in classes:
        bases = [base for base in one.__mro__ if is_library(base.__module__)]
        for part in one.__mro__:
            if part.__module__ == module.__name__:
                found.setdefault(part.__name__, []).extend(bases)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_of_libraries_are_used(path):
    tree = ast.parse(path.read_text())
    assert private_imports(tree) == []
    if not any(isinstance(node, ast.ClassDef) for node in tree.body) or path.name == "__main__.py":
        return
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    assert private_members(tree, library_bases(module)) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_attribute_of_another_object_is_used(path):
    excused = [line.strip() for line in path.read_text().splitlines() if "noqa: SLF001" in line]
    assert [line for line in excused if not any(name in line for name in OPTIONAL)] == []


def imports_of(tree: ast.AST, library: str, *, at_top: bool) -> bool:
    """Return whether a library is imported, at the top of a module or anywhere in it."""
    nodes = tree.body if at_top else list(ast.walk(tree))
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return any(name.split(".")[0] == library for name in names)


@pytest.mark.parametrize("library", EXTRAS)
def test_a_library_of_an_extra_is_imported_by_one_module_when_it_is_used(library):
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in MODULES}
    assert [name for name, tree in trees.items() if imports_of(tree, library, at_top=False)] == [EXTRAS[library]]
    assert not imports_of(trees[EXTRAS[library]], library, at_top=True)


def test_private_imports_are_seen():
    code = "import paho.mqtt._packet\nfrom pysnmp.proto import _x\nfrom os import _exit\nimport msgspec\n"
    assert private_imports(ast.parse(code)) == ["paho.mqtt._packet", "pysnmp.proto._x"]


def test_private_members_of_a_library_are_seen():
    class Base:
        def _on_message(self): ...

    code = """
class Mine(Base):
    def __init__(self):
        self._own = 1
    def _on_message(self):
        return self._own, self._connected
"""
    assert private_members(ast.parse(code), {"Mine": [Base]}) == ["Mine._connected", "Mine._on_message"]
    assert private_members(ast.parse(code), {}) == []
