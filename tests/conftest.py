"""Fixtures shared by all tests: where recorded material lies, and which programs this machine has."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

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
