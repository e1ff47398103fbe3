"""Fixtures shared by all tests: where recordings lie, and which programs this machine has."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers import fabric_simulation
from tests.helpers.broker import Broker
from tests.helpers.clock import Clock
from tests.helpers.paths import ROOT

LONG_FOLDERS = ("daemon", "commands", "dashboards", "alerts", "docs", "simulator", "mqtt", "ibfabric")
"""Folders of tests that start programs and wait for them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start files that take long first, so that at the end no process works on one while the others are idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, not set(LONG_FOLDERS) & set(item.path.parts)))


@pytest.fixture(scope="session", autouse=True)
def clean_home(tmp_path_factory) -> Iterator[Path]:
    """Give every program that a test starts an empty home, so that no test depends on what ran here before.

    net-snmp keeps files of its own and reports on standard error when it creates their folders; both are in this home,
    and its system-wide configuration is not read.
    """
    home = tmp_path_factory.mktemp("home")
    snmp = home / "snmp"
    for folder in ("cert_indexes", "mib_indexes"):
        (snmp / folder).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("SNMP_PERSISTENT_DIR", str(snmp))
        patch.setenv("SNMPCONFPATH", str(snmp))
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            patch.delenv(name, raising=False)
        yield home


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


@pytest.fixture
def broker(program):
    """Return a function that starts a broker with lines of configuration."""
    path = program("mosquitto")
    with tempfile.TemporaryDirectory(prefix="fabric-test-") as name:
        started = []

        def start(*lines: str) -> Broker:
            folder = Path(name) / str(len(started))
            folder.mkdir()
            started.append(Broker(path, folder, lines or ("allow_anonymous true",)))
            started[-1].start()
            return started[-1]

        yield start
        for one in started:
            one.stop()
