"""Log lines as logfmt or JSON on standard error; levels in colour on a terminal."""

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

LEVELS = ("debug", "info", "warning", "error")
ALIASES = MappingProxyType({"warn": "warning"})
"""Names of levels in Prometheus's own programs."""

FORMATS = ("logfmt", "json")

_COLOURS = MappingProxyType({"debug": "\x1b[2m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31;1m"})


class _Formatter(logging.Formatter):
    """One line per record: time, level, message, logger."""

    def __init__(self, form: str, *, colour: bool) -> None:
        super().__init__()
        self._form = form
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its newline."""
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        # Lone surrogates, by which Python represents bytes that are not UTF-8, would make the line undecodable.
        message = message.encode("utf-8", "backslashreplace").decode()
        fields = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "msg": message,
            "logger": record.name,
        }
        if self._form == "json":
            return json.dumps(fields)
        line = " ".join(f"{key}={_quote(value)}" for key, value in fields.items())
        colour = _COLOURS.get(fields["level"], "") if self._colour else ""
        return f"{colour}{line}\x1b[0m" if colour else line


def _quote(value: str) -> str:
    """Quote a value with blanks, quotes, equal signs or control characters, and escape the latter, as logfmt does."""
    if value and value.isascii() and value.isprintable() and not set(value) & set(' "=\\'):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    # JSON does not escape all control characters; a terminal would interpret them.
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in quoted)


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Log all records from `level` up to `stream`, by default standard error."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter(form, colour=stream.isatty() and not os.environ.get("NO_COLOR")))
    logging.basicConfig(level=ALIASES.get(level, level).upper(), handlers=[handler], force=True)
    for library in ("httpx", "httpcore", "asyncio"):  # they log every request
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


REPEAT_SECONDS = 60.0
"""Seconds after which an error of the same kind is logged again."""


class LoopErrorHandler:
    """The exception handler of an event loop; it logs each kind of error once a minute, as some are very frequent."""

    def __init__(self) -> None:
        self._logged: dict[tuple[str, type], float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error; see `asyncio.loop.set_exception_handler`."""
        words = str(context.get("message", "")).split()[:3]  # the rest names the object concerned
        kind = (" ".join(words), type(context.get("exception")))
        now = loop.time()
        if now - self._logged.get(kind, float("-inf")) >= REPEAT_SECONDS:
            self._logged[kind] = now
            loop.default_exception_handler(context)
