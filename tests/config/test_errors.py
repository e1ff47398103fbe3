"""Rules for values of the configuration: patterns that are whole, and the places of what is wrong."""

from fnmatch import fnmatchcase

import pytest

from exporter.config.errors import RuleError, check_patterns, dotted


@pytest.mark.parametrize(
    "pattern", ["", "*", "mlx5_[0-3]", "mlx5_[!0]", "[]]", "[!]]", "[[]x", "a]", "[a]b[c]", "[]-]"]
)
def test_patterns_that_are_whole(pattern):
    check_patterns("include", [pattern])


@pytest.mark.parametrize("pattern", ["mlx5_[0", "[", "[!", "[]", "[!]", "[a]b[", "[a-", "[[[", "x[]y"])
def test_patterns_that_are_not_fit_nothing_but_themselves(pattern):
    """The library takes the bracket for itself, which nobody meant."""
    assert fnmatchcase(pattern.replace("[a]", "a"), pattern)
    with pytest.raises(RuleError) as caught:
        check_patterns("include", ["good", pattern])
    assert caught.value.steps == ("include", 1)
    assert str(caught.value).startswith(f"include[1]: the pattern {pattern!r} has a [ that no ] closes; close it, or")


@pytest.mark.parametrize(
    ("steps", "text"),
    [([], ""), (["a"], "a: "), (["a", 0, "b"], "a[0].b: "), ([0], "[0]: "), (["a\nb"], "'a\\nb': ")],
)
def test_how_a_place_is_written(steps, text):
    assert dotted(steps) == text
