"""A YAML document with the line of every key, for errors.

This is the only reader of YAML: of the configuration, of the files that it names, and of the web configuration.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from exporter.config.errors import ConfigError, dotted
from exporter.config.msgspec_errors import decode_custom_type, explain

MAX_SIZE = 4 * 1024 * 1024
"""Maximum size of a file in bytes; a larger file is not a configuration."""


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
        if len(raw) > MAX_SIZE:
            raise ConfigError(f"{self._name}: is larger than {MAX_SIZE} bytes; split it, or name the right file")
        text = self._text(raw)
        from exporter.config import yaml_loader  # noqa: PLC0415  # a process without such a file does not need it

        self._root, data = yaml_loader.load(text, self._name)
        return data

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
