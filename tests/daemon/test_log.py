"""Log lines that a machine reads back, and colours only where a person looks."""

import asyncio
import io
import json
import logging
import os
import re

import pytest

from exporter.daemon import log

TOKEN = re.compile(r'([a-z]+)=("(?:[^"\\]|\\.)*"|[^ "=]*)')


@pytest.fixture(autouse=True)
def _logging_as_before():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    libraries = {name: logging.getLogger(name).level for name in ("httpx", "httpcore", "asyncio")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in libraries.items():
        logging.getLogger(name).setLevel(before)


def read_logfmt(line):
    """Parse a line of logfmt; no text is allowed between the pairs."""
    found = {key: json.loads(value) if value.startswith('"') else value for key, value in TOKEN.findall(line)}
    assert " ".join(match[0] for match in TOKEN.finditer(line)) == line
    return found


MESSAGES = [
    "listening",
    "listening on 127.0.0.1:10315",
    'say "hello"',
    "a=b",
    "back\\slash",
    "two\nlines\r\ttab",
    "Gräfin 東京 🦊",
    "",
    "\x1b[31mred\x7f\x9b31m\u2028",
    "\U000e0001tag",
]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("form", log.FORMATS)
def test_log_lines_parse_to_the_logged_text(message, form):
    stream = io.StringIO()
    log.set_up("info", form, stream)
    logging.getLogger("exporter.test").info("%s", message)
    (line,) = stream.getvalue().removesuffix("\n").split("\n")
    found = json.loads(line) if form == "json" else read_logfmt(line)
    assert list(found) == ["ts", "level", "msg", "logger"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["ts"])
    assert (found["level"], found["msg"], found["logger"]) == ("info", message, "exporter.test")
    assert line.isprintable()


@pytest.mark.parametrize("form", log.FORMATS)
def test_bytes_that_are_no_text_make_a_line_all_the_same(form):
    name = b"Gr\xe4fin".decode("utf-8", "surrogateescape")
    raw = io.BytesIO()
    log.set_up("info", form, io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    logging.getLogger("exporter.test").info("%s", name)
    line = raw.getvalue().decode().removesuffix("\n")
    found = json.loads(line) if form == "json" else read_logfmt(line)
    assert found["msg"] == r"Gr\udce4fin"


def test_a_trace_is_part_of_its_line():
    stream = io.StringIO()
    log.set_up("info", "logfmt", stream)
    try:
        raise ZeroDivisionError("oops")
    except ZeroDivisionError:
        logging.getLogger("exporter.test").exception("fault")
    (line,) = stream.getvalue().splitlines()
    message = read_logfmt(line)["msg"]
    assert message.startswith("fault\nTraceback (most recent call last)")
    assert message.endswith("ZeroDivisionError: oops")


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_records_below_the_level_are_not_logged(level, shown):
    stream = io.StringIO()
    log.set_up(level, "json", stream)
    for name in log.LEVELS:
        logging.getLogger("exporter.test").log(getattr(logging, name.upper()), name)
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == list(log.LEVELS)[4 - shown :]


def test_libraries_do_not_log_each_request():
    stream = io.StringIO()
    log.set_up("debug", "json", stream)
    for name in ("httpx", "httpcore.connection", "asyncio"):
        logging.getLogger(name).info("GET /")
        logging.getLogger(name).warning("odd")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["odd"] * 3


def test_a_second_set_up_does_not_log_twice():
    first, second = io.StringIO(), io.StringIO()
    log.set_up("info", "json", first)
    log.set_up("info", "json", second)
    logging.getLogger("exporter.test").info("once")
    assert (first.getvalue(), len(second.getvalue().splitlines())) == ("", 1)


@pytest.mark.parametrize(
    ("environment", "form", "coloured"),
    [
        ({}, "logfmt", True),
        ({"NO_COLOR": "1"}, "logfmt", False),
        ({"NO_COLOR": ""}, "logfmt", True),
        ({}, "json", False),
    ],
)
def test_colours_are_for_terminals(monkeypatch, environment, form, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    ours, terminal = os.openpty()
    try:
        with open(terminal, "w", encoding="utf-8") as stream:  # noqa: PTH123  # a descriptor
            log.set_up("debug", form, stream)
            for level in log.LEVELS:
                logging.getLogger("exporter.test").log(getattr(logging, level.upper()), "x")
            text = ""
            while text.count("\n") < len(log.LEVELS):
                text += os.read(ours, 65536).decode()
            shown = text.splitlines()
    finally:
        os.close(ours)
    marks = [re.match(r"\x1b\[\d+m", line) for line in shown]
    assert [mark and mark[0] for mark in marks] == (
        ["\x1b[2m", None, "\x1b[33m", "\x1b[31m"] if coloured else [None] * 4
    )
    assert [line.endswith("\x1b[0m") for line in shown] == [mark is not None for mark in marks]


async def test_errors_of_the_event_loop_are_logged_once_a_minute_for_each_kind(caplog, monkeypatch):
    loop = asyncio.get_running_loop()
    now = [1000.0]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    take = log.LoopErrorHandler()
    for number in range(100):
        take(loop, {"message": f"Exception in callback number {number}", "exception": OSError(number)})
    take(loop, {"message": "Exception in callback number 1", "exception": KeyError(1)})
    assert [record.getMessage() for record in caplog.records] == [
        "Exception in callback number 0",
        "Exception in callback number 1",
    ]
    now[0] += log.REPEAT_SECONDS
    take(loop, {"message": "Exception in callback number 7", "exception": OSError(7)})
    assert caplog.records[-1].getMessage() == "Exception in callback number 7"
