"""Dumps of `ethtool`: own ones, written by hand for tests, and those of real devices in the corpus."""

import json

import pytest

from tests.helpers.paths import FIXTURES

OWN = FIXTURES / "ethtool"
OWN_EXPECTATIONS = json.loads((OWN / "expectations.json").read_text("utf-8"))


def dumps(own, recorded):
    """Return parameters (origin, name, expectation) for own dumps and for those of the corpus."""
    origins = (("own", own), ("corpus", recorded))
    return [
        pytest.param(origin, name, expected, id=f"{origin}-{name}")
        for origin, expectations in origins
        for name, expected in expectations.items()
    ]


def folder_of(origin, request):
    """Return the folder of the dumps of an origin; the test is skipped if it needs the corpus and there is none."""
    return OWN if origin == "own" else request.getfixturevalue("corpus") / "host"
