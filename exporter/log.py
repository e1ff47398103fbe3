"""Log lines as logfmt or JSON on standard error; levels in colour where a person reads them on a terminal."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")
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
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("httpx", "httpcore", "asyncio"):  # their lines about each request say nothing to an operator
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))
