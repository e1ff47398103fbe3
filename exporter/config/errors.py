"""What a value of the configuration must be beside its type: the error for it, and the rule that all patterns share."""

from collections.abc import Iterable, Sequence


class RuleError(ValueError):
    """A rule that does not hold, raised by a type's `__post_init__`.

    Attributes:
        steps: Keys and indexes that lead from the value of that type to what is wrong.
        text: What is wrong with it.
    """

    def __init__(self, steps: Sequence[str | int], text: str) -> None:
        super().__init__(f"{dotted(steps)}{text}")
        self.steps = tuple(steps)
        self.text = text


def dotted(steps: Sequence[str | int]) -> str:
    """Write a place as `a.b[0]: `; nothing for no steps."""
    shown = (step if isinstance(step, int) or step.isprintable() else repr(step) for step in steps)
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in shown).removeprefix(".")
    return f"{text}: " if text else ""


def check_patterns(key: str, patterns: Iterable[str]) -> None:
    """See that shell patterns are whole: one with a bracket that is not closed fits nothing, without a word.

    Args:
        key: Where they stand.
        patterns: The patterns.

    Raises:
        RuleError: One is broken.
    """
    for place, pattern in enumerate(patterns):
        if _is_open(pattern):
            text = f"the pattern {pattern!r} has a [ that no ] closes; close it, or write [[] for the character itself"
            raise RuleError([key, place], text)


def _is_open(pattern: str) -> bool:
    """Tell whether a set of characters is begun and not ended, by the rules of `fnmatch`."""
    at = 0
    while (begin := pattern.find("[", at)) >= 0:
        first = begin + 1 + (pattern[begin + 1 : begin + 2] == "!")
        end = pattern.find("]", first + 1)  # one that comes first belongs to the set
        if end < 0:
            return True
        at = end + 1
    return False
