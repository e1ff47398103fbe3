"""Typed reading of the files that users write: every error names file, line, path, value and remedy.

Nothing is guessed: an unknown key is an error, because a misspelled key that is ignored is a check that silently does
not run.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from exporter.config.errors import ConfigError, dotted
from exporter.config.files import read_regular
from exporter.config.msgspec_errors import decode_custom_type, explain
from exporter.config.yaml_document import MAX_SIZE, Document


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
    document = Document(name)
    return document.convert(document.load(raw), wanted)


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
        return msgspec.convert(values, wanted, dec_hook=decode_custom_type)
    except msgspec.ValidationError as error:
        path, text = explain(error, values, wanted)
        raise ConfigError(f"{name}{dotted(path).replace('_', '-') or '*: '}{text}") from None


def error_at(path: Path, steps: Sequence[str | int], text: str) -> ConfigError:
    """Return the error of a value that matches its type and is invalid all the same. Blocks: reads the file again.

    Args:
        path: The file.
        steps: Keys and indexes that lead to the value.
        text: Description of the error.
    """
    document = Document(str(path))
    with suppress(OSError, ConfigError):  # it was valid when it was read before
        document.load(read_regular(path, MAX_SIZE))
    return document.error_at(steps, text)
