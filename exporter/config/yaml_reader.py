"""A YAML file with a type: what does not fit is told with file, line, path, value and remedy.

The configuration is such a file, and so is everything else that people write for this program. Nothing is guessed: a
key that nobody knows is an error, since a typo that is passed over is a check that silently does not run.
"""

import difflib
import enum
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from exporter.config.errors import RuleError, dotted
from exporter.config.files import read_regular
from exporter.config.units import Amount, BitRate, Duration

MAX_SIZE = 4 * 1024 * 1024
"""Bytes of a configuration file; a larger one is some other file."""

MAX_VALUES = 100_000
"""Values of a configuration once its aliases are followed; a few lines of aliases of aliases can make billions."""

MAX_DIGITS = 18
"""Digits of a number: nothing that is set here is larger, and one without end would break a scrape, or Python."""

_SECRET = re.compile(r"pass|communit|secret|token(?!s_per_step)|credential|key", re.IGNORECASE)

_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "|": "or",
}
"""What msgspec calls by names that are not those of YAML."""


class ConfigError(Exception):
    """The configuration cannot be used; the text says where, what and how to put it right."""


def read(path: Path, wanted: type, hint: str = "its permissions") -> Any:  # noqa: ANN401  # an object of `wanted`
    """Read a file as an object of a type.

    Args:
        path: The file.
        wanted: The type, a msgspec.Struct.
        hint: What to check where it cannot be read.

    Raises:
        ConfigError: It cannot be read, is no YAML, or does not fit.
    """
    try:
        raw = read_regular(path, MAX_SIZE)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check {hint}") from None
    return parse(raw, str(path), wanted)


def parse(raw: bytes, name: str, wanted: type) -> Any:  # noqa: ANN401  # an object of `wanted`
    """Read bytes as an object of a type; an empty file is an empty mapping.

    Args:
        raw: What stands in the file.
        name: Of the file, for errors.
        wanted: The type, a msgspec.Struct.

    Raises:
        ConfigError: It is no YAML, or does not fit.
    """
    document = _Document(name)
    data = document.load(raw) if raw.strip() else {}
    try:
        return msgspec.convert({} if data is None else data, wanted, dec_hook=_read_custom)
    except msgspec.ValidationError as error:
        raise document.error(error, data, wanted) from None


def convert(values: Mapping[str, object], wanted: type, name: str) -> Any:  # noqa: ANN401  # an object of `wanted`
    """Make an object of a type from values that stand in no file.

    Args:
        values: By key.
        wanted: The type, a msgspec.Struct.
        name: What stands before a key, for errors.

    Raises:
        ConfigError: They do not fit.
    """
    try:
        return msgspec.convert(values, wanted, dec_hook=_read_custom)
    except msgspec.ValidationError as error:
        at = str(error).partition(" - at `$.")[2].rstrip("`")
        text = str(error).partition(" - at ")[0]
        if text.startswith("Invalid enum value"):
            text = f"is {values[at]!r}; known are {', '.join(_choices(_type_at(wanted, [at])))}"
        raise ConfigError(f"{name}{at.replace('_', '-')}: {text}" if at else f"{name}*: {text}") from None


def located(path: Path, steps: Sequence[str | int], text: str) -> ConfigError:
    """Make the error of a value that fits its type and is wrong all the same. Blocks: it reads the file once more.

    Args:
        path: The file.
        steps: Keys and indexes that lead to the value.
        text: What is wrong with it.
    """
    document = _Document(str(path))
    with suppress(OSError, ConfigError):  # it was good when it was read
        document.load(read_regular(path, MAX_SIZE))
    return document.placed(steps, text)


def _read_custom(wanted: type, value: object) -> object:
    """Read what YAML has no type for; called by msgspec."""
    if issubclass(wanted, Amount | BitRate | Duration):
        if not isinstance(value, str):
            value = str(value)  # a bare number lacks its unit, which the parser says best
        return wanted.parse(value)
    raise NotImplementedError(wanted)


class _Document:
    """A YAML document that remembers the line of every key, for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._root: Any = None

    def load(self, raw: bytes) -> Any:  # noqa: ANN401  # any YAML value
        """Read the document.

        Raises:
            ConfigError: It is no YAML, or a key stands twice.
        """
        import yaml  # noqa: PLC0415  # a process without a configuration file does not need it

        text = self._text(raw)
        try:
            loader = yaml.SafeLoader(text)
            self._root = loader.get_single_node()
            twice = next(_duplicates(self._root), None)
            if twice is not None:
                line, key = twice
                raise ConfigError(f"{self._name}:{line}: the key {key!r} stands twice; remove one")
            if self._root is not None and _size(self._root, {}) > MAX_VALUES:
                raise ConfigError(
                    f"{self._name}: its aliases make it larger than {MAX_VALUES} values; write out what they stand for"
                )
            endless = next(_endless_numbers(self._root), None)
            if endless is not None:
                raise ConfigError(
                    f"{self._name}:{endless}: a number of more than {MAX_DIGITS} digits; give one that is meant"
                )
            return None if self._root is None else loader.construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{self._name}:{mark.line + 1}:{mark.column + 1}" if mark else self._name
            problem = ", ".join(filter(None, (error.context, error.problem)))
            problem = re.sub(
                r"(alias|anchor|tag|handle) '.*'", r"\1 '…'", problem
            )  # or a secret that begins with * & !
            raise ConfigError(f"{place}: is no valid YAML: {problem}; check indentation and quotes") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ConfigError(
                f"{self._name}:{line}: is no valid YAML: the character U+{error.character:04X} is not allowed; "
                "remove it"
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self._name}: is no valid YAML: {error}") from None

    def _text(self, raw: bytes) -> str:
        """Decode the file."""
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self._name}:{line}: is no UTF-8; save the file in that encoding") from None

    def error(self, error: msgspec.ValidationError, data: object, root: type) -> ConfigError:
        """Say what msgspec found in the words of the file."""
        message, _, at = str(error).partition(" - at `")
        path = _path(at.removeprefix("key` in `").removesuffix("`"), data, root)
        unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL)
        missing = re.fullmatch(r"Object missing required field `(.*)`", message)
        if at.startswith("key` in `"):
            key = next(key for key in _value_at(data, path) if not isinstance(key, str))  # type: ignore[attr-defined]
            text = f"the key {key!r} is no text; put it into quotes"
        elif unknown:
            path = [*path, unknown[1]]
            text = f"unknown key; {_suggestion(unknown[1], _keys_at(root, path[:-1]))}"
        elif missing:
            text = f"lacks the key {missing[1]!r}; add it"
        elif message.startswith("Invalid enum value"):
            value, known = _value_at(data, path), _choices(_type_at(root, path))
            text = f"is {_shown(path, value)}; known are {', '.join(known)}{_meant(value, known)}"
        elif isinstance(error.__cause__, RuleError):
            path, text = [*path, *error.__cause__.steps], error.__cause__.text
        else:
            text = _wrong(message, path, _value_at(data, path))
        return self.placed(path, text)

    def placed(self, path: Sequence[str | int], text: str) -> ConfigError:
        """Say something of a place in the file."""
        return ConfigError(f"{self._name}:{self._line(path)}: {dotted(path)}{text}")

    def _line(self, path: Sequence[str | int]) -> int:
        """Find the line of the deepest part of a path that there is."""
        node, line = self._root, 1
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            mark, node = found
            line = mark.line + 1
        return line


def _nodes(root: Any) -> Iterator[Any]:  # noqa: ANN401  # YAML nodes
    """Give every node of a document once, whatever its aliases."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if not isinstance(node.value, str):
            for part in node.value:
                waiting += part if isinstance(part, tuple) else [part]


def _endless_numbers(root: Any) -> Iterator[int]:  # noqa: ANN401  # a YAML node
    """Find whole numbers of too many digits; give the line of each."""
    for node in _nodes(root):
        if node.tag == "tag:yaml.org,2002:int" and len(node.value.replace("_", "")) > MAX_DIGITS:
            yield node.start_mark.line + 1


def _duplicates(root: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401  # a YAML node
    """Find keys that stand twice in one mapping, which YAML's reader would pass over."""
    for node in _nodes(root):
        if node.tag != "tag:yaml.org,2002:map":
            continue
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str):
                if key.value in seen:
                    yield key.start_mark.line + 1, key.value
                seen.add(key.value)


def _size(node: Any, known: dict[int, int]) -> int:  # noqa: ANN401  # a YAML node
    """Count the values below a node with all aliases followed; one that holds itself is larger than any limit."""
    size = known.get(id(node))
    if size is None:
        known[id(node)] = MAX_VALUES + 1
        size = 1
        if not isinstance(node.value, str):
            for part in node.value:
                size += sum(_size(one, known) for one in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = size
    return size


def _child(node: Any, step: str | int) -> tuple[Any, Any] | None:  # noqa: ANN401  # YAML nodes
    """Find the start and the node of one step of a path."""
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


def _path(text: str, data: object, root: type) -> list[str | int]:
    """Split msgspec's `$.switches.targets[0].name`; it says `[...]` for any key of a free mapping."""
    path: list[str | int] = []
    for index, key in re.findall(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)", text):
        if index == "...":
            wanted = _type_at(root, [*path, ""])
            free: Any = _value_at(data, path)
            path += [name for name, value in free.items() if not _fits(value, wanted)][:1]
        else:
            path.append(int(index) if index else key)
    return path


def _fits(value: object, wanted: Any) -> bool:  # noqa: ANN401  # any type expression
    try:
        msgspec.convert(value, wanted, dec_hook=_read_custom)
    except msgspec.ValidationError:
        return False
    return True


def _value_at(data: object, path: Sequence[str | int]) -> object:
    for step in path:
        try:
            data = data[step]  # type: ignore[index]  # what is no container is caught below
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _wrong(message: str, path: Sequence[str | int], value: object) -> str:
    """Say what was expected and what is there instead."""
    expected, _, got = message.partition(", got ")
    if not got and not expected.startswith("expected"):
        return expected  # a rule about several keys: it says all, and no one value is wrong
    words = re.sub(r"\w+|\|", lambda found: _WORDS.get(found[0], found[0]), expected) if got else expected
    words = words[0].lower() + words[1:].replace("`", "")
    # Text in place of a mapping may be what belongs under one of its keys, and that a secret.
    shown = "text" if "mapping" in words and isinstance(value, str) else _shown(path, value)
    remedy = ""
    if "text" in words and isinstance(value, int | float):
        remedy = "; put it into quotes"
    elif "number" in words and isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal():
        remedy = "; take off the quotes"
    return f"{words}, and this is {shown}{remedy}"


def _shown(path: Sequence[str | int], value: object) -> str:
    """Show a value, unless it may be a secret."""
    if any(isinstance(step, str) and _SECRET.search(step) for step in path):
        return "something else (not shown: it may be a secret)"
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys_at(root: type, path: Sequence[str | int]) -> list[str]:
    """List the keys that are known at a place of the file."""
    wanted = _type_at(root, path)
    return [field.encode_name for field in msgspec.structs.fields(wanted)] if _is_struct(wanted) else []


def _type_at(wanted: Any, path: Sequence[str | int]) -> Any:  # noqa: ANN401  # any type expression
    """Follow a path through types; None where it leads out of them."""
    for step in path:
        of = typing.get_args(wanted)
        if _is_struct(wanted):
            wanted = {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}.get(str(step))
        elif of:
            wanted = of[0] if isinstance(step, int) else of[-1]
        if isinstance(wanted, types.UnionType):  # an optional one
            wanted = next((one for one in typing.get_args(wanted) if one is not types.NoneType), None)
    return wanted


def _choices(wanted: Any) -> list[str]:  # noqa: ANN401  # any type expression
    """List the values that a type of few values has."""
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return [str(one.value) for one in wanted]
    if typing.get_origin(wanted) is typing.Literal:
        return [str(one) for one in typing.get_args(wanted)]
    return [choice for one in typing.get_args(wanted) for choice in _choices(one)]


def _meant(value: object, known: Sequence[str]) -> str:
    """Name the choice that somebody may have meant."""
    close = difflib.get_close_matches(str(value).lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_struct(wanted: object) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _suggestion(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here are {', '.join(known)}" if known else "no keys are known here"
