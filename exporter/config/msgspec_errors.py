"""What a ValidationError of msgspec means for the user who wrote the values: where it is, and what to do.

The error of msgspec is a text without parts. This is the only module that takes such texts apart;
tests/config/test_msgspec_errors.py shows those it relies on.
"""

import difflib
import enum
import re
import types
import typing
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from exporter.config.errors import HiddenKey, RuleError, is_name
from exporter.config.units import Amount, BitRate, Duration

_SECRET = re.compile(r"pass|communit|secret|token(?!s_per_step)|credential|key|basic_auth", re.IGNORECASE)
_CREDENTIAL = re.compile(r"(?:password|community)(?:_file|_env)?")
"""Keys of a mapping with credentials. What is in the place of another key or value beside them may be a secret."""

_MAX_NUMBER = 999
_MAX_SHORT = 3
"""A number or a text of up to three characters is no secret."""

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


class ErrorText(NamedTuple):
    """The parts of an error text of msgspec.

    Attributes:
        kind: `unknown_key`, `missing_key`, `key_type`, `choice`, `type` (the value has another type), `limit` (it has
            the type and is outside its limits), or `rule` (the text is that of our own validation).
        path: The place, such as `$.targets[0].name`; empty for the whole document.
        detail: The name of the key; the expected type; the text of a rule.
    """

    kind: str
    path: str
    detail: str


_FORMS = (
    ("unknown_key", re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)),
    ("missing_key", re.compile(r"Object missing required field `(.*)`")),
    ("choice", re.compile(r"(Invalid enum value .*)", re.DOTALL)),
    ("type", re.compile(r"Expected (`.*`), got `.*`")),
    ("limit", re.compile(r"Expected (`.*)", re.DOTALL)),
)


def parse_error_text(text: str) -> ErrorText:
    """Take an error text of msgspec apart."""
    message, _, place = text.partition(" - at `")
    place = place.removesuffix("`")
    if place.startswith("key` in `"):
        return ErrorText("key_type", place.removeprefix("key` in `"), message)
    for kind, form in _FORMS:
        if found := form.fullmatch(message):
            return ErrorText(kind, place, found[1])
    return ErrorText("rule", place, message)


def explain(error: msgspec.ValidationError, data: object, root: type) -> tuple[list[str | int], str]:
    """Return the keys and indexes that lead to the invalid value, and what is wrong with it and what to do.

    Args:
        error: The error.
        data: The data that was converted.
        root: The type that it was converted to.
    """
    kind, place, detail = parse_error_text(str(error))
    path = _path(place, data, root)
    value = _value_at(data, path)
    if isinstance(error.__cause__, RuleError):
        return [*path, *error.__cause__.steps], error.__cause__.text
    if kind == "unknown_key":
        return _unknown_key(path, detail, root)
    if kind == "key_type":
        text = _key_type(value)
    elif kind == "missing_key":
        text = f"missing key {detail!r}; add it"
    elif kind == "choice":
        known = _choices(_type_at(root, path))
        meant = _did_you_mean(value, known)
        shown = _display(path, value, root if not meant else None)
        text = f"is {shown}; expected one of {', '.join(known)}{meant}"
    elif kind == "rule" and not detail.startswith("expected"):
        text = detail  # of a rule about several keys: it is complete, and there is no one value to show
    else:
        text = _type_mismatch(kind, detail, _display(path, value, root), value)
    return _without_secret(path, value, root), text


def _unknown_key(path: list[str | int], key: str, root: type) -> tuple[list[str | int], str]:
    known = _keys_at(root, path)
    close = difflib.get_close_matches(key, known, n=1)
    is_shown = is_name(key) and bool(close) if _has_credentials(root, path) else is_name(key) or bool(close)
    return [*path, key if is_shown else HiddenKey(key)], f"unknown key; {_suggestion(close, known)}"


def _without_secret(path: list[str | int], value: object, root: type) -> list[str | int]:
    """Return a path whose last step is not shown if it is a free name without the mapping that belongs there."""
    last = path[-1] if path else 0
    if not isinstance(last, str) or isinstance(value, dict) or is_name(last):
        return path
    above = _type_at(root, path[:-1])
    is_free = typing.get_origin(above) is dict
    is_secret = any(isinstance(step, str) and _SECRET.search(step) for step in path[:-1])
    if is_free and (is_secret or _holds_credentials(typing.get_args(above)[-1])):
        return [*path[:-1], HiddenKey(last)]
    return path


def _holds_credentials(wanted: Any) -> bool:  # noqa: ANN401  # any type expression
    """Return whether a type has keys of credentials, itself or below."""
    if not _is_struct(wanted):
        return any(_holds_credentials(one) for one in typing.get_args(wanted))
    fields = msgspec.structs.fields(wanted)
    return any(_CREDENTIAL.search(field.encode_name) or _holds_credentials(field.type) for field in fields)


def _has_credentials(root: type | None, path: Sequence[str | int]) -> bool:
    """Return whether the mapping at a path has keys of credentials."""
    return root is not None and any(_CREDENTIAL.search(key) for key in _keys_at(root, path))


def decode_custom_type(wanted: type, value: object) -> object:
    """Convert a value to a type that YAML lacks; called by msgspec."""
    if issubclass(wanted, Amount | BitRate | Duration):
        if not isinstance(value, str):
            value = str(value)  # a number without unit: the parser of the type has the best error
        return wanted.parse(value)
    raise NotImplementedError(wanted)


def _key_type(value: object) -> str:
    keys = value if isinstance(value, dict) else {}
    key = next((key for key in keys if not isinstance(key, str)), None)
    is_shown = key is None or (isinstance(key, int) and abs(key) <= _MAX_NUMBER)
    return f"{f'the key {key!r}' if is_shown else 'a key'} is not a string; put it in quotes"


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
        msgspec.convert(value, wanted, dec_hook=decode_custom_type)
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


def _type_mismatch(kind: str, expected: str, displayed: str, value: object) -> str:
    """Describe which value was expected and what the document contains instead."""
    words = expected  # of a type of ours, complete
    if kind == "type":
        words = "expected " + re.sub(r"\w+|\|", lambda found: _WORDS.get(found[0], found[0]), expected).replace("`", "")
    elif kind == "limit":
        words = "expected " + re.sub(r"^`(\w+)`", lambda found: _WORDS.get(found[1], found[1]), expected)
    if kind == "limit" and ", got " in words:  # the length that a list has
        return words
    # A string in place of a mapping may be the value of one of its keys, and a secret.
    shown = "a string" if "mapping" in words and isinstance(value, str) else displayed
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


def _display(path: Sequence[str | int], value: object, root: type | None) -> str:
    """Return a value as text, unless it may be a secret, also of another key beside it; `root` is None if it is not."""
    misplaced = isinstance(value, str) and len(value) > _MAX_SHORT and _has_credentials(root, path[:-1])
    if misplaced or any(isinstance(step, str) and _SECRET.search(step) for step in path):
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


def _suggestion(close: Sequence[str], known: Sequence[str]) -> str:
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known keys are {', '.join(known)}" if known else "no keys are allowed here"
