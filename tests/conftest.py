"""Fixtures shared by all tests: where recordings lie, and which programs this machine has."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import fabric_simulation
from tests.helpers.clock import Clock
from tests.helpers.paths import ROOT


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of recordings from real devices; it is not part of the project, so a test may have to skip."""
    folder = Path(os.environ.get("FABRIC_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not folder.is_dir():
        pytest.skip("needs the corpus")
    return folder


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Return a function that finds a program, or skips the test that asked for it."""

    def find(name: str) -> str:
        path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if path is None:
            pytest.skip(f"needs {name}")
        return path

    return find


@pytest.fixture
def stopped_clock(monkeypatch):
    """Return a function that replaces `monotonic` in modules by one clock that a test moves."""

    def put(*modules):
        made = Clock()
        for module in modules:
            monkeypatch.setattr(module, "monotonic", made)
        return made

    return put


@pytest.fixture
def fabric(monkeypatch):
    """Return a small simulated InfiniBand fabric that shares its clock with the code under test."""
    return fabric_simulation.small(fabric_simulation.Clock().install(monkeypatch))


@pytest.fixture
async def make_sweeper(fabric):
    """Return a function that makes the source over the fabric."""
    made = []

    def make(**options):
        made.append(fabric_simulation.SourceSweeper(fabric, **options))
        return made[-1]

    yield make
    for one in made:
        await one.source.close()
