"""Nodes and data of a YAML text, read strictly: what is ambiguous or has no limit is an error.

Of the exporter only `yaml_document` uses this module, and imports it late: a process without a configuration file does
not need YAML. `alerts/thresholds.py` uses it too.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from exporter.config.errors import NOT_SHOWN, ConfigError, is_name

MAX_VALUES = 100_000
"""Maximum number of values after aliases are expanded; a few lines of nested aliases can make billions."""

MAX_DEPTH = 64
"""Maximum number of levels; no configuration needs more, and each takes a part of Python's stack."""

MAX_DIGITS = 18
"""Maximum digits of an integer: no setting needs more, and a huge one would break rendering, or Python itself."""

_FORBIDDEN = re.compile("[\0\ud800-\udfff]")
"""What only an escape can write: NUL, which no path, host or label can contain, and the halves of characters."""

_INDICATORS = "*&%@`"
"""What no value without quotes can begin with. The parser takes the pattern *_bytes for an alias, for example."""

_QUOTED = re.compile(r"(alias|anchor|tag|handle) '.*'")
"""What errors of the parser quote: a secret that begins with * & ! would be shown."""


def load(text: str, name: str) -> tuple[Any, Any]:
    """Parse a text.

    Args:
        text: The document.
        name: Name of the file, for errors.

    Returns:
        The root node, and the data; None and None if the document is empty.

    Raises:
        ConfigError: It is not YAML, a key is duplicated, or a limit is exceeded.
    """
    try:
        loader = _Loader(text, name)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{name}:{line}: is not valid YAML: the character U+{error.character:04X} is not allowed; remove it"
        ) from None
    try:
        root = loader.get_single_node()
        if root is None:
            return None, None
        _check(root, name)
        return root, loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        for begin in filter(None, (error.context_mark, error.problem_mark)):
            first = text[begin.index : begin.index + 1]
            if first and first in _INDICATORS:
                place = f"{name}:{begin.line + 1}:{begin.column + 1}"
                raise ConfigError(
                    f"{place}: is not valid YAML: a value without quotes cannot begin with {first}; put it in quotes"
                ) from None
        problem = _QUOTED.sub(r"\1 '…'", ", ".join(filter(None, (error.context, error.problem))))
        raise ConfigError(f"{place}: is not valid YAML: {problem}; check indentation and quotes") from None
    except (ValueError, OverflowError):  # of the scanner, whose other errors have a mark
        line = loader.line + 1
        raise ConfigError(f"{name}:{line}: is not valid YAML: an escape is not a character; remove it") from None


class _Loader(yaml.SafeLoader):
    """The parser, with limits while it composes nodes, and an error with a mark for every value that it cannot read."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self._file = file
        self._values = 0
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401  # YAML nodes
        """Compose a node and all below it."""
        self._values += 1
        self._depth += 1
        if self._values > MAX_VALUES:
            raise ConfigError(f"{self._file}: has more than {MAX_VALUES} values; split it, or name the right file")
        if self._depth > MAX_DEPTH:
            raise _too_deep(self._file)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: ANN401  # as its base
        """Construct the value of a node: the base raises errors of many types for what does not match its tag."""
        try:
            return super().construct_object(node, deep=deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            raise yaml.constructor.ConstructorError(
                None, None, f"the value is not a valid {kind}", node.start_mark
            ) from None

    def construct_scalar(self, node: Any) -> Any:  # noqa: ANN401  # a YAML node and its text
        """Return the text of a scalar: its base accepts a mapping with the key = too, which evades the limits."""
        return yaml.constructor.BaseConstructor.construct_scalar(self, node)


def _too_deep(name: str) -> ConfigError:
    return ConfigError(f"{name}: is nested more than {MAX_DEPTH} levels deep; check brackets and indentation")


def _check(root: Any, name: str) -> None:  # noqa: ANN401  # a YAML node
    """Check what the parser accepts and this reader does not.

    Raises:
        ConfigError: A character is forbidden, a key is duplicated, or a limit is exceeded.
    """
    for line, character in _forbidden_characters(root):
        raise ConfigError(
            f"{name}:{line}: the character U+{ord(character):04X} is not allowed; "
            "write a character itself in place of its escape, or remove it"
        )
    for line, key in _duplicates(root):
        shown = repr(key) if is_name(key) else NOT_SHOWN
        raise ConfigError(f"{name}:{line}: the key {shown} is duplicated; remove one")
    size, depth = _measure(root, {})
    if size > MAX_VALUES:
        raise ConfigError(f"{name}: aliases expand it to more than {MAX_VALUES} values; write the values out")
    if depth > MAX_DEPTH:
        raise _too_deep(name)
    for line in _lines_of_huge_integers(root):
        raise ConfigError(f"{name}:{line}: an integer of more than {MAX_DIGITS} digits; give a smaller one")


def _nodes(root: Any) -> Iterator[Any]:  # noqa: ANN401  # YAML nodes
    """Yield every node of a document once, also where aliases refer to it several times."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if not isinstance(node, yaml.ScalarNode):
            for part in node.value:
                waiting += part if isinstance(part, tuple) else [part]


def _forbidden_characters(root: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401  # a YAML node
    """Yield the line and the character of strings with a character that is not allowed."""
    for node in _nodes(root):
        if isinstance(node, yaml.ScalarNode) and (found := _FORBIDDEN.search(node.value)):
            yield node.start_mark.line + 1, found[0]


def _lines_of_huge_integers(root: Any) -> Iterator[int]:  # noqa: ANN401  # a YAML node
    """Yield the lines of integers with too many digits."""
    for node in _nodes(root):
        is_integer = isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:int"
        if is_integer and len(node.value.replace("_", "")) > MAX_DIGITS:
            yield node.start_mark.line + 1


def _duplicates(root: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401  # a YAML node
    """Yield line and name of duplicate keys of a mapping, which the YAML parser would accept."""
    for node in _nodes(root):
        if not isinstance(node, yaml.MappingNode):
            continue
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value)


def _measure(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:  # noqa: ANN401  # a YAML node
    """Count the values and levels at a node with all aliases expanded; one that contains itself exceeds any limit."""
    measured = known.get(id(node))
    if measured is None:
        known[id(node)] = MAX_VALUES + 1, 0
        size, depth = 1, 0
        if not isinstance(node, yaml.ScalarNode):
            for part in node.value:
                for child in part if isinstance(part, tuple) else (part,):
                    inner, below = _measure(child, known)
                    size, depth = size + inner, max(depth, below)
        measured = known[id(node)] = size, depth + 1
    return measured
