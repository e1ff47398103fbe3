"""Log lines as logfmt or JSON on standard error; levels in colour where a person reads them on a terminal."""

import asyncio
import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

LEVELS = ("debug", "info", "warning", "error")
ALIASES = {"warn": "warning"}
"""How Prometheus's own programs call a level."""

FORMATS = ("logfmt", "json")

_COLOURS = {"debug": "\x1b[2m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31;1m"}


class _Formatter(logging.Formatter):
    """One line a record: time, level, message, and where it came from."""

    def __init__(self, form: str, *, colour: bool) -> None:
        super().__init__()
        self._form = form
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Give the line, without its end."""
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        # Half characters, as which Python keeps bytes that are no UTF-8, would make a line that nobody can read.
        message = message.encode("utf-8", "backslashreplace").decode()
        fields = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "msg": message,
            "logger": record.name,
        }
        if self._form == "json":
            return json.dumps(fields)
        line = " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())
        start = _COLOURS.get(fields["level"], "") if self._colour else ""
        return f"{start}{line}\x1b[0m" if start else line


def _quoted(value: str) -> str:
    """Quote as logfmt does: what holds blanks, quotes, equal signs or control characters, which are escaped."""
    if value and value.isascii() and value.isprintable() and not set(value) & set(' "=\\'):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    # JSON lets some control characters pass, of which a terminal would take orders.
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in quoted)


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Send all log lines from `level` up to `stream`, by default standard error."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Formatter(form, colour=stream.isatty() and not os.environ.get("NO_COLOR")))
    logging.basicConfig(level=ALIASES.get(level, level).upper(), handlers=[handler], force=True)
    for library in ("httpx", "httpcore", "asyncio"):  # their lines about each request say nothing to an operator
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))


REPEAT = 60.0
"""Seconds after which a fault of the same kind is told again."""


class LoopFaults:
    """Logs the faults that an event loop reports, one a minute of each kind: some come by the thousand."""

    def __init__(self) -> None:
        """Start with nothing told."""
        self._told: dict[tuple[str, type], float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take one; to be a loop's exception handler."""
        words = str(context.get("message", "")).split()[:3]  # what follows names the one object it happened to
        kind = (" ".join(words), type(context.get("exception")))
        now = loop.time()
        if now - self._told.get(kind, float("-inf")) >= REPEAT:
            self._told[kind] = now
            loop.default_exception_handler(context)
