"""A YAML document with the line of every key, read strictly: what is ambiguous or has no limit is an error.

This is the only reader of YAML: of the configuration, of the files that it names, and of the web configuration.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from exporter.config.errors import ConfigError, dotted
from exporter.config.msgspec_errors import decode_custom_type, explain

MAX_SIZE = 4 * 1024 * 1024
"""Maximum size of a file in bytes; a larger file is not a configuration."""

MAX_VALUES = 100_000
"""Maximum number of values after aliases are expanded; a few lines of nested aliases can make billions."""

MAX_DEPTH = 64
"""Maximum number of levels; no configuration needs more, and each takes a part of Python's stack."""

MAX_DIGITS = 18
"""Maximum digits of an integer: no setting needs more, and a huge one would break rendering, or Python itself."""


class Document:
    """A YAML document with the line of every key, for errors.

    Args:
        name: Name of the file, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._root: Any = None

    def load(self, raw: bytes) -> Any:  # noqa: ANN401  # any YAML value
        """Parse the document.

        Raises:
            ConfigError: It is not YAML, a key is duplicated, or a limit is exceeded.
        """
        import yaml  # noqa: PLC0415  # a process without a configuration file does not need it

        if len(raw) > MAX_SIZE:
            raise ConfigError(f"{self._name}: is larger than {MAX_SIZE} bytes; split it, or name the right file")
        text = self._text(raw)
        try:
            loader = yaml.SafeLoader(text)
            self._root = loader.get_single_node()
            if self._root is None:
                return None
            self._check_limits()
            return loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            problem = ", ".join(filter(None, (error.context, error.problem)))
            problem = re.sub(
                r"(alias|anchor|tag|handle) '.*'", r"\1 '…'", problem
            )  # a secret that begins with * & ! would be shown
            raise ConfigError(f"{place}: is not valid YAML: {problem}; check indentation and quotes") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ConfigError(
                f"{self._name}:{line}: is not valid YAML: the character U+{error.character:04X} is not allowed; "
                "remove it"
            ) from None
        except RecursionError:
            raise self._too_deep() from None
        except (yaml.YAMLError, ValueError) as error:  # of a value such as a date that does not exist
            raise ConfigError(f"{self._name}: is not valid YAML: {error}") from None

    def _check_limits(self) -> None:
        """Check what the parser accepts and this reader does not.

        Raises:
            ConfigError: A key is duplicated, or a limit is exceeded.
        """
        duplicate = next(_duplicates(self._root), None)
        if duplicate is not None:
            line, key = duplicate
            raise ConfigError(f"{self._name}:{line}: the key {key!r} is duplicated; remove one")
        size, depth = _measure(self._root, {})
        if size > MAX_VALUES:
            raise ConfigError(f"{self._name}: aliases expand it to more than {MAX_VALUES} values; write the values out")
        if depth > MAX_DEPTH:
            raise self._too_deep()
        huge = next(_lines_of_huge_integers(self._root), None)
        if huge is not None:
            raise ConfigError(f"{self._name}:{huge}: an integer of more than {MAX_DIGITS} digits; give a smaller one")

    def _too_deep(self) -> ConfigError:
        return ConfigError(f"{self._name}: is nested more than {MAX_DEPTH} levels deep; check brackets and indentation")

    def _text(self, raw: bytes) -> str:
        """Decode the file."""
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self._name}:{line}: is not valid UTF-8; save the file in that encoding") from None

    def convert(self, data: object, wanted: type) -> Any:  # noqa: ANN401  # an object of `wanted`
        """Convert the data of the document to a type; an empty document is an empty mapping.

        Args:
            data: What `load` returned.
            wanted: The type, a msgspec.Struct.

        Raises:
            ConfigError: The data does not match the type.
        """
        data = {} if data is None else data
        try:
            return msgspec.convert(data, wanted, dec_hook=decode_custom_type)
        except msgspec.ValidationError as error:
            raise self.error_at(*explain(error, data, wanted)) from None

    def error_at(self, path: Sequence[str | int], text: str) -> ConfigError:
        """Return an error at a path of the document."""
        return ConfigError(f"{self._name}:{self._line(path)}: {dotted(path)}{text}")

    def _line(self, path: Sequence[str | int]) -> int:
        """Return the line of the deepest existing part of a path."""
        node, line = self._root, 1
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            mark, node = found
            line = mark.line + 1
        return line


def _nodes(root: Any) -> Iterator[Any]:  # noqa: ANN401  # YAML nodes
    """Yield every node of a document once, also where aliases refer to it several times."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if not isinstance(node.value, str):
            for part in node.value:
                waiting += part if isinstance(part, tuple) else [part]


def _lines_of_huge_integers(root: Any) -> Iterator[int]:  # noqa: ANN401  # a YAML node
    """Yield the lines of integers with too many digits."""
    for node in _nodes(root):
        if node.tag == "tag:yaml.org,2002:int" and len(node.value.replace("_", "")) > MAX_DIGITS:
            yield node.start_mark.line + 1


def _duplicates(root: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401  # a YAML node
    """Yield line and name of duplicate keys of a mapping, which the YAML parser would accept."""
    for node in _nodes(root):
        if node.tag != "tag:yaml.org,2002:map":
            continue
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value)


def _measure(node: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:  # noqa: ANN401  # a YAML node
    """Count the values and levels at a node with all aliases expanded; one that contains itself exceeds any limit."""
    measured = known.get(id(node))
    if measured is None:
        known[id(node)] = MAX_VALUES + 1, 0
        size, depth = 1, 0
        if not isinstance(node.value, str):
            for part in node.value:
                for child in part if isinstance(part, tuple) else (part,):
                    inner, below = _measure(child, known)
                    size, depth = size + inner, max(depth, below)
        measured = known[id(node)] = size, depth + 1
    return measured


def _child(node: Any, step: str | int) -> tuple[Any, Any] | None:  # noqa: ANN401  # YAML nodes
    """Return the start mark and the node of one step of a path."""
    if node is None or isinstance(node.value, str):
        return None
    if isinstance(step, int):
        if step < len(node.value) and not isinstance(node.value[step], tuple):
            return node.value[step].start_mark, node.value[step]
        return None
    for part in node.value:
        if isinstance(part, tuple) and part[0].value == step:
            return part[0].start_mark, part[1]
    return None
