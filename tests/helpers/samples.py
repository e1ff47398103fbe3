"""Sample files of other programs: our own, written by hand, and published ones, which only the corpus has."""

from tests.helpers.paths import FIXTURES

PUBLISHED = "corpus/"
"""Prefix of the names of published samples; names without it are below tests/fixtures."""


def sample_path(request, name):
    """Return the path of a sample; skip the test where it is in the corpus and there is none."""
    if name.startswith(PUBLISHED):
        return request.getfixturevalue("corpus") / name.removeprefix(PUBLISHED)
    return FIXTURES / name
