"""Errors that are shown to users, and the validation of shell patterns.

Only a UserError is printed without a traceback: any other exception is a fault of this program.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class UserError(Exception):
    """Something given by the user, or the system it runs on, is wrong; the text has place, value and remedy."""


class ConfigError(UserError):
    """A file of the configuration is invalid; the text has place, value and remedy."""


class RuleError(UserError, ValueError):
    """A value is invalid although its type is right; raised by `__post_init__` of the options types.

    It is a ValueError, since msgspec adds the place in the file to these alone.

    Attributes:
        steps: Keys and indexes that lead from the object that raised the error to the invalid value.
        text: Description of the error, without the path.
    """

    def __init__(self, steps: Sequence[str | int], text: str) -> None:
        super().__init__(f"{dotted(steps)}{text}")
        self.steps = tuple(steps)
        self.text = text


NOT_SHOWN = "(not shown, as it may be a secret)"

_NAME = re.compile(r"[A-Za-z_][A-Za-z_-]{0,31}|.{1,3}", re.DOTALL)


class HiddenKey(str):
    """A step of a path that errors do not quote: what is written in place of a key may be a secret."""

    __slots__ = ()


def is_name(text: str) -> bool:
    """Return whether a text that should be a key looks like one, with a typo perhaps, and not like a secret."""
    return _NAME.fullmatch(text) is not None


@contextmanager
def system_errors_as_user_errors(place: str, remedy: str) -> Iterator[None]:
    """Convert errors of the operating system in the block.

    Args:
        place: The file or flag, for the error.
        remedy: What to do.

    Raises:
        UserError: The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"{place}: {error.strerror or error}; {remedy}") from None


def dotted(steps: Sequence[str | int]) -> str:
    """Return a path as text, `a.b[0]: `; empty for no steps."""
    shown = [_shown(step) for step in steps]
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in shown).removeprefix(".")
    return f"{text}: " if text else ""


def _shown(step: str | int) -> str | int:
    if isinstance(step, HiddenKey):
        return NOT_SHOWN
    return step if isinstance(step, int) or step.isprintable() else repr(step)


def check_patterns(key: str, patterns: Iterable[str]) -> None:
    """Validate shell patterns: one with an unclosed bracket would silently match nothing.

    Args:
        key: Key that contains the patterns, for the error.
        patterns: The patterns.

    Raises:
        RuleError: A bracket is not closed.
    """
    for index, pattern in enumerate(patterns):
        check_pattern([key, index], pattern)


def check_pattern(steps: Sequence[str | int], pattern: str) -> None:
    """Validate a shell pattern, whose path is `steps`.

    Raises:
        RuleError: A bracket is not closed.
    """
    if _has_unclosed_bracket(pattern):
        text = f"the pattern {pattern!r} has an unclosed [; close it, or write [[] for a literal ["
        raise RuleError(steps, text)


def _has_unclosed_bracket(pattern: str) -> bool:
    """Return whether a character set is not closed, by the rules of `fnmatch`."""
    at = 0
    while (begin := pattern.find("[", at)) >= 0:
        first = begin + 1 + (pattern[begin + 1 : begin + 2] == "!")
        end = pattern.find("]", first + 1)  # a ] that comes first is a member of the set
        if end < 0:
            return True
        at = end + 1
    return False
