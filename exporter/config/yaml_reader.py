"""Typed reading of YAML files: every error names file, line, path, value and remedy.

Used for the configuration and for all other files that users write. Nothing is guessed: an unknown key is an error,
because a misspelled key that is ignored is a check that silently does not run.
"""

import difflib
import enum
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from exporter.config.errors import RuleError, dotted
from exporter.config.files import read_regular
from exporter.config.units import Amount, BitRate, Duration

MAX_SIZE = 4 * 1024 * 1024
"""Maximum size of a file in bytes; a larger file is not a configuration."""

MAX_VALUES = 100_000
"""Maximum number of values after aliases are expanded; a few lines of nested aliases can make billions."""

MAX_DIGITS = 18
"""Maximum digits of an integer: no setting needs more, and a huge one would break rendering, or Python itself."""

_SECRET = re.compile(r"pass|communit|secret|token(?!s_per_step)|credential|key", re.IGNORECASE)

_WORDS = MappingProxyType(
    {
        "object": "a mapping",
        "array": "a list",
        "str": "a string",
        "bool": "true or false",
        "int": "an integer",
        "float": "a number",
        "|": "or",
    }
)
"""Names of msgspec for types, and what they are called in errors."""


class ConfigError(Exception):
    """The configuration is invalid; the text has place, value and remedy."""


def read(path: Path, wanted: type, hint: str = "its permissions") -> Any:  # noqa: ANN401  # an object of `wanted`
    """Read a file into an object of a type.

    Args:
        path: The file.
        wanted: The type, a msgspec.Struct.
        hint: What to check if the file cannot be read.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or does not match the type.
    """
    try:
        raw = read_regular(path, MAX_SIZE)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; check {hint}") from None
    return parse(raw, str(path), wanted)


def parse(raw: bytes, name: str, wanted: type) -> Any:  # noqa: ANN401  # an object of `wanted`
    """Parse bytes into an object of a type; an empty file is an empty mapping.

    Args:
        raw: Content of the file.
        name: Name of the file, for errors.
        wanted: The type, a msgspec.Struct.

    Raises:
        ConfigError: The content is not YAML, or does not match the type.
    """
    document = _Document(name)
    data = document.load(raw) if raw.strip() else {}
    try:
        return msgspec.convert({} if data is None else data, wanted, dec_hook=_decode_custom_type)
    except msgspec.ValidationError as error:
        raise document.error(error, data, wanted) from None


def convert(values: Mapping[str, object], wanted: type, name: str) -> Any:  # noqa: ANN401  # an object of `wanted`
    """Convert values that come from no file, such as parameters of a request, into an object of a type.

    Args:
        values: Values by key.
        wanted: The type, a msgspec.Struct.
        name: Prefix of keys in errors.

    Raises:
        ConfigError: The values do not match the type.
    """
    try:
        return msgspec.convert(values, wanted, dec_hook=_decode_custom_type)
    except msgspec.ValidationError as error:
        at = str(error).partition(" - at `$.")[2].rstrip("`")
        text = str(error).partition(" - at ")[0]
        if text.startswith("Invalid enum value"):
            text = f"is {values[at]!r}; expected one of {', '.join(_choices(_type_at(wanted, [at])))}"
        raise ConfigError(f"{name}{at.replace('_', '-')}: {text}" if at else f"{name}*: {text}") from None


def error_at(path: Path, steps: Sequence[str | int], text: str) -> ConfigError:
    """Return the error of a value that matches its type and is invalid all the same. Blocks: reads the file again.

    Args:
        path: The file.
        steps: Keys and indexes that lead to the value.
        text: Description of the error.
    """
    document = _Document(str(path))
    with suppress(OSError, ConfigError):  # it was valid when it was read before
        document.load(read_regular(path, MAX_SIZE))
    return document.error_at(steps, text)


def _decode_custom_type(wanted: type, value: object) -> object:
    """Convert a value to a type that YAML lacks; called by msgspec."""
    if issubclass(wanted, Amount | BitRate | Duration):
        if not isinstance(value, str):
            value = str(value)  # a number without unit: the parser of the type has the best error
        return wanted.parse(value)
    raise NotImplementedError(wanted)


class _Document:
    """A YAML document with the line of every key, for errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._root: Any = None

    def load(self, raw: bytes) -> Any:  # noqa: ANN401  # any YAML value
        """Parse the document.

        Raises:
            ConfigError: It is not YAML, or a key is duplicated.
        """
        import yaml  # noqa: PLC0415  # a process without a configuration file does not need it

        text = self._text(raw)
        try:
            loader = yaml.SafeLoader(text)
            self._root = loader.get_single_node()
            duplicate = next(_duplicates(self._root), None)
            if duplicate is not None:
                line, key = duplicate
                raise ConfigError(f"{self._name}:{line}: the key {key!r} is duplicated; remove one")
            if self._root is not None and _size(self._root, {}) > MAX_VALUES:
                raise ConfigError(
                    f"{self._name}: aliases expand it to more than {MAX_VALUES} values; write the values out"
                )
            huge = next(_lines_of_huge_integers(self._root), None)
            if huge is not None:
                raise ConfigError(
                    f"{self._name}:{huge}: an integer of more than {MAX_DIGITS} digits; give a smaller one"
                )
            return None if self._root is None else loader.construct_document(self._root)
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
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"{self._name}: is not valid YAML: {error}") from None

    def _text(self, raw: bytes) -> str:
        """Decode the file."""
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self._name}:{line}: is not valid UTF-8; save the file in that encoding") from None

    def error(self, error: msgspec.ValidationError, data: object, root: type) -> ConfigError:
        """Return an error of msgspec in terms of the file."""
        message, _, at = str(error).partition(" - at `")
        path = _path(at.removeprefix("key` in `").removesuffix("`"), data, root)
        unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL)
        missing = re.fullmatch(r"Object missing required field `(.*)`", message)
        if at.startswith("key` in `"):
            key = next(key for key in _value_at(data, path) if not isinstance(key, str))  # type: ignore[attr-defined]
            text = f"the key {key!r} is not a string; put it in quotes"
        elif unknown:
            path = [*path, unknown[1]]
            text = f"unknown key; {_suggestion(unknown[1], _keys_at(root, path[:-1]))}"
        elif missing:
            text = f"missing key {missing[1]!r}; add it"
        elif message.startswith("Invalid enum value"):
            value, known = _value_at(data, path), _choices(_type_at(root, path))
            text = f"is {_display(path, value)}; expected one of {', '.join(known)}{_did_you_mean(value, known)}"
        elif isinstance(error.__cause__, RuleError):
            path, text = [*path, *error.__cause__.steps], error.__cause__.text
        else:
            text = _type_mismatch(message, path, _value_at(data, path))
        return self.error_at(path, text)

    def error_at(self, path: Sequence[str | int], text: str) -> ConfigError:
        """Return an error at a path of the file."""
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
        if node is None or id(node) in seen:
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


def _size(node: Any, known: dict[int, int]) -> int:  # noqa: ANN401  # a YAML node
    """Count the values below a node with all aliases expanded; a node that contains itself exceeds any limit."""
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


def _path(text: str, data: object, root: type) -> list[str | int]:
    """Split a path of msgspec such as `$.switches.targets[0].name`; any key of a free mapping is `[...]` there."""
    path: list[str | int] = []
    for index, key in re.findall(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)", text):
        if index == "...":
            wanted = _type_at(root, [*path, ""])
            free: Any = _value_at(data, path)
            path += [name for name, value in free.items() if not _matches_type(value, wanted)][:1]
        else:
            path.append(int(index) if index else key)
    return path


def _matches_type(value: object, wanted: Any) -> bool:  # noqa: ANN401  # any type expression
    try:
        msgspec.convert(value, wanted, dec_hook=_decode_custom_type)
    except msgspec.ValidationError:
        return False
    return True


def _value_at(data: object, path: Sequence[str | int]) -> object:
    for step in path:
        try:
            data = data[step]  # type: ignore[index]  # anything but a container raises
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _type_mismatch(message: str, path: Sequence[str | int], value: object) -> str:
    """Describe which type was expected and what the file contains instead."""
    expected, _, got = message.partition(", got ")
    if not got and not expected.startswith("expected"):
        return expected  # a rule about several keys: its text is complete, and there is no one value to show
    words = re.sub(r"\w+|\|", lambda found: _WORDS.get(found[0], found[0]), expected) if got else expected
    words = words[0].lower() + words[1:].replace("`", "")
    # A string in place of a mapping may be the value of one of its keys, and a secret.
    shown = "a string" if "mapping" in words and isinstance(value, str) else _display(path, value)
    remedy = ""
    if "string" in words and isinstance(value, int | float):
        remedy = "; put it in quotes"
    elif (
        ("number" in words or "integer" in words)
        and isinstance(value, str)
        and value.strip().replace(".", "", 1).isdecimal()
    ):
        remedy = "; remove the quotes"
    return f"{words}, got {shown}{remedy}"


def _display(path: Sequence[str | int], value: object) -> str:
    """Return a value as text, unless it may be a secret."""
    if any(isinstance(step, str) and _SECRET.search(step) for step in path):
        return "a value that is not shown, as it may be a secret"
    if value is None:
        return "an empty value"
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _keys_at(root: type, path: Sequence[str | int]) -> list[str]:
    """List the keys that are valid at a path."""
    wanted = _type_at(root, path)
    return [field.encode_name for field in msgspec.structs.fields(wanted)] if _is_struct(wanted) else []


def _type_at(wanted: Any, path: Sequence[str | int]) -> Any:  # noqa: ANN401  # any type expression
    """Follow a path through types; None where it leaves them."""
    for step in path:
        of = typing.get_args(wanted)
        if _is_struct(wanted):
            wanted = {field.encode_name: field.type for field in msgspec.structs.fields(wanted)}.get(str(step))
        elif of:
            wanted = of[0] if isinstance(step, int) else of[-1]
        if isinstance(wanted, types.UnionType):  # an optional value
            wanted = next((one for one in typing.get_args(wanted) if one is not types.NoneType), None)
    return wanted


def _choices(wanted: Any) -> list[str]:  # noqa: ANN401  # any type expression
    """List the values of an enumerated type."""
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return [str(one.value) for one in wanted]
    if typing.get_origin(wanted) is typing.Literal:
        return [str(one) for one in typing.get_args(wanted)]
    return [choice for one in typing.get_args(wanted) for choice in _choices(one)]


def _did_you_mean(value: object, known: Sequence[str]) -> str:
    """Suggest the value that is most similar."""
    close = difflib.get_close_matches(str(value).lower(), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_struct(wanted: object) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _suggestion(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known keys are {', '.join(known)}" if known else "no keys are allowed here"
