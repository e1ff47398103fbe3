"""Fixtures of the tests that need the guest (see `run`); elsewhere they are skipped."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.guest import ADDRESS, CARDS, SIMULATED, exporter, link, nic, put_driver, rdma, run

CONFIG = """
sources:
  rdma: {interval: 1s}
  nic: {interval: 10m}
  nccl: {enabled: false}
  hostcheck: {enabled: false}
"""
"""NICs are read every ten minutes: what is seen of them earlier came by events."""


@pytest.fixture(scope="session", autouse=True)
def _guest():
    if "FABRIC_LAB" not in os.environ:
        pytest.skip("needs the lab")
    # Without addresses of its own choice, a device sends nothing that a test did not ask for.
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    for address in CARDS:
        put_driver(address, "unbind")


@pytest.fixture(scope="session")
def daemon(_guest):
    """Return the exporter, which runs through all tests, while devices come and go around it."""
    with exporter(CONFIG) as one:
        yield one


@pytest.fixture
def pair():
    """Return two network devices that are connected."""
    with link("v0", "type", "veth", "peer", "name", "v1"):
        run("ip", "link", "set", "v1", "up")
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", "v0")
        yield "v0", "v1"


@pytest.fixture
def rxe(pair):
    """Return the name of a SoftRoCE device on the first of the pair."""
    with rdma("rxe0", "rxe", pair[0]) as name:
        yield name


@pytest.fixture
def siw(pair):
    """Return the name of an iWARP device on the second of the pair."""
    done = subprocess.run(
        ["rdma", "link", "add", "siw0", "type", "siw", "netdev", pair[1]], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs siw: {done.stderr.strip()}")
    yield "siw0"
    subprocess.run(["rdma", "link", "del", "siw0"], capture_output=True, check=False)


@pytest.fixture
def card(_guest):
    """Return a simulated card with two ports that are connected to each other."""
    if not SIMULATED.exists():
        pytest.skip("needs netdevsim")
    with nic(1) as one:
        yield one


@pytest.fixture
def pci_cards(_guest):
    """Return the PCI addresses of QEMU's network cards, which have their drivers while they are needed."""
    found = [address for address in CARDS if put_driver(address, "bind")]
    if len(found) < len(CARDS):
        pytest.skip("needs QEMU's network cards and their drivers")
    yield found
    for address in found:
        put_driver(address, "unbind")
