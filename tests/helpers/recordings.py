"""Recordings of switch APIs: own ones, which are part of the project, and those of the corpus, where it is present."""

import json
from pathlib import Path

import pytest

from tests.helpers.paths import FIXTURES

OWN = "own/"
CORPUS = "corpus/"
OWN_FOLDER = FIXTURES / "switch-api"


def recording_path(request: pytest.FixtureRequest, name: str) -> Path:
    """Return the path of a recording `own/…` or `corpus/…`; skip the test where the corpus is absent."""
    if name.startswith(OWN):
        return OWN_FOLDER / name.removeprefix(OWN)
    folder = request.getfixturevalue("corpus") / "switch"
    if not folder.is_dir():
        pytest.skip("needs the corpus of switches")
    return folder / name.removeprefix(CORPUS)


def read_recording(request: pytest.FixtureRequest, name: str) -> object:
    """Return the data of a recording; of the results of several commands the first, of text the lines."""
    text = recording_path(request, name).read_text()
    if name.endswith(".txt") and text[0] != "{":
        return {"Lines": text.splitlines()}
    if text.startswith('{\\"'):  # the source of a program, with escaped quotes
        text = json.loads(f'"{text.strip()}"')
    return json.loads(text)
