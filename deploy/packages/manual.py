"""The manual page fabric-exporter(1) of the parser of the command line, in the man macros of roff (man(7))."""

import argparse
import time
from collections.abc import Iterator

HEAD = """\
.TH FABRIC\\-EXPORTER 1 {date} "fabric\\-exporter {version}" "User Commands"
.SH NAME
fabric\\-exporter \\- Prometheus exporter for the network of GPU clusters
.SH SYNOPSIS
.B fabric\\-exporter
.RI [ COMMAND ]
.RI [ FLAG ...]
.SH DESCRIPTION"""

TAIL = """\
.SH SIGNALS
.TP
.B SIGHUP
The configuration files are read again.
.TP
.B SIGTERM
The exporter ends, within five seconds.
.SH "EXIT STATUS"
.TP
.B 0
Success.
.TP
.B 1
Failure, such as a wrong configuration; of
.BR check ,
.B validate
and
.BR "ib diff" :
a finding, or a difference.
.TP
.B 2
Wrong flags; of these three commands also a failure.
.SH FILES
.TP
.I /etc/fabric\\-exporter/config.yml
Configuration of the service.
.TP
.I /etc/default/fabric\\-exporter
Flags of the service.
.TP
.I /usr/share/fabric\\-exporter
An example of every key, a drop\\-in for timings, and a prolog and an epilog of Slurm.
.TP
.I /run/fabric\\-exporter
Files of jobs, and the socket of their timings.
.SH "SEE ALSO"
.BR systemd.exec (5)
for
.BR LoadCredential= ,
.BR systemctl (1)"""


def page(parser: argparse.ArgumentParser, version: str, seconds: int) -> str:
    """Return the source of the page.

    Args:
        parser: The parser, with its commands.
        version: Version of the program.
        seconds: Date of the page, in seconds since the epoch.
    """
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    head = HEAD.format(date=date, version=_escape(version))
    lines = [head, *_paragraphs(parser.description), *_paragraphs(parser.epilog), *_flags(parser)]
    lines.append(".SH COMMANDS")
    for name, command in _commands(parser):
        lines += _command(name, command)
    return "\n".join([*lines, TAIL]) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001  # argparse has no other list of its flags
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def _command(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the lines of a command, and of its own commands after it."""
    yield f'.SS "{_escape(name)}"'
    yield from _paragraphs(command.description)
    yield from _flags(command)
    yield from _paragraphs(command.epilog)
    for inner, one in _commands(command):
        yield from _command(f"{name} {inner}", one)


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the lines of arguments and flags, but --help, which each command has."""
    formatter = argparse.HelpFormatter(parser.prog)
    for action in parser._actions:  # noqa: SLF001
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction):  # noqa: SLF001
            yield from (".TP", _heading(action), _text(formatter._expand_help(action)))  # noqa: SLF001


def _heading(action: argparse.Action) -> str:
    """Return the names of a flag in bold type, and its value in italics."""
    names = ", ".join(rf"\fB{_escape(one)}\fR" for one in action.option_strings)
    if action.nargs == 0:
        return names
    value = str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())
    more = " ..." if action.nargs in {"+", "*"} else ""
    breakable = _escape(value).replace("|", r"|\:")  # no line of a page is long enough for all technologies
    return f"{names} \\fI{breakable}\\fR{more}".strip()


def _paragraphs(text: str | None) -> Iterator[str]:
    """Yield the lines of a text as paragraphs, and those of a list, `  NAME: text`, as its items."""
    for line in (text or "").splitlines():
        name, colon, rest = line.partition(": ")
        if colon and line.startswith("  "):
            yield from (".TP", rf"\fB{_escape(name.strip())}\fR", _text(rest.strip()))
        else:
            yield from (".PP", _text(line.strip()))


def _text(line: str) -> str:
    """Escape a line of text, whose first character would make it a request if it were a dot or a quote."""
    escaped = _escape(line)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escape(text: str) -> str:
    """Escape characters that roff interprets, and hyphens, which are typed as they are in flags and names."""
    return text.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ")
