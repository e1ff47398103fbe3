"""Errors of configuration values: validation of shell patterns, and paths in errors."""

from fnmatch import fnmatchcase

import pytest

from exporter.config.errors import RuleError, check_patterns, dotted


@pytest.mark.parametrize(
    "pattern", ["", "*", "mlx5_[0-3]", "mlx5_[!0]", "[]]", "[!]]", "[[]x", "a]", "[a]b[c]", "[]-]"]
)
def test_valid_patterns(pattern):
    check_patterns("include", [pattern])


@pytest.mark.parametrize("pattern", ["mlx5_[0", "[", "[!", "[]", "[!]", "[a]b[", "[a-", "[[[", "x[]y"])
def test_patterns_with_an_unclosed_bracket_are_rejected(pattern):
    """`fnmatch` treats an unclosed bracket as a literal character."""
    assert fnmatchcase(pattern.replace("[a]", "a"), pattern)
    with pytest.raises(RuleError) as caught:
        check_patterns("include", ["good", pattern])
    assert caught.value.steps == ("include", 1)
    assert str(caught.value).startswith(f"include[1]: the pattern {pattern!r} has an unclosed [; close it, or")


@pytest.mark.parametrize(
    ("steps", "text"),
    [([], ""), (["a"], "a: "), (["a", 0, "b"], "a[0].b: "), ([0], "[0]: "), (["a\nb"], "'a\\nb': ")],
)
def test_paths_as_text(steps, text):
    assert dotted(steps) == text
