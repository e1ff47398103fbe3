"""Strict reading of JSON documents that programs write and users pass on, such as a saved topology.

They are not read as YAML, which would take a hundred times as long: such a document may have many megabytes.
"""

import json
from typing import Any, NoReturn

from exporter.config.errors import ConfigError


def parse(raw: bytes, name: str, remedy: str) -> Any:  # noqa: ANN401  # any JSON value
    """Parse a document.

    Args:
        raw: Content of the file.
        name: Name of the file, for errors.
        remedy: What to do with an invalid file.

    Raises:
        ConfigError: It is not JSON, nested too deeply, or has a duplicate key.
    """
    try:
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{name}:{error.lineno}:{error.colno}: is not JSON: {error.msg}; {remedy}") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: is not JSON: it is not valid UTF-8; {remedy}") from None
    except RecursionError:
        raise ConfigError(f"{name}: is not JSON: it is nested too deeply; {remedy}") from None
    except ValueError as error:  # of the functions below, or an integer with thousands of digits
        raise ConfigError(f"{name}: is not JSON: {error}; {remedy}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)[:60]!r} is duplicated")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
