"""Fixtures shared by all tests: where recorded material lies, and which programs this machine has."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import fabric_simulation
import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = Path(__file__).resolve().parent / "fixtures"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Give the folder of recordings from real devices; it is no part of the project, so a test may have to skip."""
    folder = Path(os.environ.get("FABRIC_CORPUS", ROOT.parent / "shared" / "corpus"))
    if not folder.is_dir():
        pytest.skip("needs the corpus")
    return folder


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Give a function that finds a program, or skips the test that asked for it."""

    def find(name: str) -> str:
        path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if path is None:
            pytest.skip(f"needs {name}")
        return path

    return find


class Clock:
    """A monotonic clock that stands still until a test moves `now`."""

    def __init__(self):
        self.now = 5000.0

    def __call__(self):
        return self.now


@pytest.fixture
def stopped_clock(monkeypatch):
    """Give a function that puts one such clock in the place of `monotonic` in modules."""

    def put(*modules):
        made = Clock()
        for module in modules:
            monkeypatch.setattr(module, "monotonic", made)
        return made

    return put


@pytest.fixture
def fabric(monkeypatch):
    """Give a small simulated InfiniBand fabric, whose clock is that of what looks at it."""
    return fabric_simulation.small(fabric_simulation.Clock().put(monkeypatch))


@pytest.fixture
async def swept(fabric):
    """Give a function that makes the source over the fabric."""
    made = []

    def make(**options):
        made.append(fabric_simulation.Swept(fabric, **options))
        return made[-1]

    yield make
    for one in made:
        await one.source.close()
