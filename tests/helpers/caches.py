"""Find the mappings and sets that objects fill from call to call: what could grow with what devices and jobs report."""

import ast
from collections.abc import Iterable

_KINDS = frozenset({"dict", "set", "OrderedDict", "defaultdict", "Counter"})
_ADDING = frozenset({"add", "setdefault", "update", "__setitem__"})


def caches_of(source: str) -> list[str]:
    """Return `Class.attribute` of each mapping or set that is empty at first, and to which the class itself adds."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            empty = {name for inner in ast.walk(node) if (name := _empty_attribute(inner)) is not None}
            found += [f"{node.name}.{name}" for name in sorted(empty & set(_added_to(node)))]
    return found


def _empty_attribute(node: ast.AST) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    else:
        return None
    if not _is_empty(value):
        return None
    if isinstance(target, ast.Name):
        return target.id if _name(getattr(value, "func", value)) == "field" else None
    return _own_attribute(target)


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if not isinstance(value, ast.Call):
        return False
    name = _name(value.func)
    if name == "field":
        return any(_name(one.value) in _KINDS for one in value.keywords if one.arg == "default_factory")
    return name in _KINDS and (not value.args or name == "defaultdict")


def _added_to(node: ast.ClassDef) -> Iterable[str]:
    for inner in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(inner, ast.Assign):
            targets = [one.value for one in inner.targets if isinstance(one, ast.Subscript)]
        elif isinstance(inner, ast.AugAssign):
            targets = [inner.target.value if isinstance(inner.target, ast.Subscript) else inner.target]
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _ADDING:
            targets = [inner.func.value]
        yield from filter(None, map(_own_attribute, map(_without_subscripts, targets)))


def _without_subscripts(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _own_attribute(node: ast.expr) -> str | None:
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own else None


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
