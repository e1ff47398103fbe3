"""Output of commands: colours and progress on a terminal, plain text elsewhere."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

BOLD, GREEN, YELLOW, RED, CYAN, PLAIN = "\033[1m", "\033[32m", "\033[33m", "\033[31m", "\033[36m", "\033[0m"
COLOURS = (BOLD, GREEN, YELLOW, RED, CYAN, PLAIN)


def print_lines(stream: TextIO, lines: Iterable[str]) -> None:
    """Print lines at once; colours on a terminal only.

    Raises:
        OSError: The stream cannot be written.
    """
    text = "".join(f"{line}\n" for line in lines)
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        for code in COLOURS:
            text = text.replace(code, "")
    stream.write(text)
    stream.flush()


def print_output(lines: Iterable[str]) -> None:
    """Print the whole output of a command, with colours on a terminal only.

    A reader of standard output that has ended, such as `head`, does not change the status of the command.

    Raises:
        OSError: Standard output cannot be written for another reason.
    """
    with suppress_broken_pipe():
        print_lines(sys.stdout, lines)


@contextmanager
def suppress_broken_pipe() -> Iterator[None]:
    """Let what is written in the context fail silently once nothing reads standard output, as behind `head`."""
    try:
        yield
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Write what follows on standard output to nowhere, or the flush at the end of the program fails too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def show_progress(text: str) -> None:
    """Show a line on standard error in place of the last one, if that is a terminal; an empty one clears it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)  # noqa: T201


def listed(names: Sequence[str], most: int) -> str:
    """Return names with commas between them, and the number of those beyond the limit."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
