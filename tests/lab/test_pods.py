"""Network devices of pods, as the plugins of CNI attach them: traffic to the byte, and the end of a pod."""

import base64
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Self

import pytest

from lab.guest import NETWORK, exporter, json_of, link, run, until

PLUGINS = Path("/usr/lib/cni")
RESULTS = Path("/var/lib/cni/results")

CONFIG = """
sources:
  pods: {enabled: true}
  nic: {}
  rdma: {enabled: false}
  nccl: {enabled: false}
  hostcheck: {enabled: false}
"""

FRAMES, SIZE = 50, 300

SEND = f"""
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
    sock.bind((sys.argv[1], 0))
    for _ in range({FRAMES}):
        sock.send(bytes.fromhex("ffffffffffff0a00000000010800") + bytes({SIZE - 14}))
"""
"""Sends frames that are broadcast, whose source is no device's and whose content is nothing."""


class Pod:
    """A pod: its namespace, to which plugins attach devices."""

    def __init__(self, name: str) -> None:
        self.name, self.container = name, uuid.uuid4().hex
        self.namespace = f"cni-{uuid.uuid4()}"
        self.attached: dict[str, dict] = {}

    def inside(self, *command: object) -> str:
        return run("ip", "netns", "exec", self.namespace, *command)

    def call(self, command: str, interface: str, configuration: dict) -> dict:
        """Call a plugin as a runtime does."""
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": self.container,
            "CNI_NETNS": f"/run/netns/{self.namespace}",
            "CNI_IFNAME": interface,
            "CNI_PATH": str(PLUGINS),
        }
        done = subprocess.run(
            [PLUGINS / configuration["type"]],
            env={**os.environ, **environment},
            input=json.dumps({"cniVersion": "1.0.0", "name": "fabric", **configuration}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (configuration, done.stdout, done.stderr)
        return json.loads(done.stdout) if command == "ADD" else {}

    def attach(self, interface: str, **configuration: object) -> None:
        """Attach a device, and keep the result as libcni does."""
        result = self.call("ADD", interface, configuration)
        self.attached[interface] = configuration
        RESULTS.mkdir(parents=True, exist_ok=True)
        cached = {
            "kind": "cniCacheV1",
            "containerId": self.container,
            "config": base64.b64encode(json.dumps({"name": "fabric", **configuration}).encode()).decode(),
            "ifName": interface,
            "networkName": "fabric",
            "netns": f"/run/netns/{self.namespace}",
            "cniArgs": [["K8S_POD_NAMESPACE", "train"], ["K8S_POD_NAME", self.name], ["K8S_POD_UID", "uid-of-it"]],
            "result": result,
        }
        (RESULTS / f"fabric-{self.container}-{interface}").write_text(json.dumps(cached))

    def detach(self, interface: str) -> None:
        self.call("DEL", interface, self.attached.pop(interface))

    def counters(self, interface: str) -> dict[str, dict[str, int]]:
        (found,) = json_of("ip", "-n", self.namespace, "-j", "-s", "link", "show", interface)
        return found["stats64"]

    def send(self, interface: str) -> None:
        self.inside(sys.executable, "-c", SEND, interface)

    def end(self) -> None:
        """Remove the namespace as a runtime does that has crashed before: without the plugins."""
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)
        for file in RESULTS.glob(f"*-{self.container}-*"):
            file.unlink()


@contextmanager
def pod(name: str) -> Iterator[Pod]:
    one = Pod(name)
    run("ip", "netns", "add", one.namespace)
    try:
        # Without addresses of its own choice, a device sends nothing that a test did not ask for.
        one.inside("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
        yield one
    finally:
        one.end()


@pytest.fixture(scope="module", autouse=True)
def _plugins(_guest):
    if not (PLUGINS / "macvlan").exists():
        pytest.skip("needs containernetworking-plugins")


@pytest.fixture(scope="module")
def pods_daemon(_guest):
    with exporter(CONFIG) as one:
        yield one


NETWORKS = {
    "macvlan": {"type": "macvlan", "mode": "bridge", "ipam": {}},
    "ipvlan": {"type": "ipvlan", "mode": "l2", "ipam": {"type": "host-local", "subnet": "10.77.0.0/24"}},
    "veth": {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.78.0.0/24"}},
}


@pytest.mark.parametrize("attachment", NETWORKS)
def test_traffic_of_a_pod_is_attributed_to_it_to_the_byte(pods_daemon, card, attachment):
    parent = card.ports[0]
    with pod(f"with-{attachment}") as one:
        master = {} if attachment == "veth" else {"master": parent}
        one.attach("net1", **NETWORKS[attachment], **master)
        where = {"netns": one.namespace, "device": "net1"}
        page = pods_daemon.until("the pod has its name", lambda page: named(page, one, **where))
        info = page.info("fabric_pod_nic_info", **where)
        assert (info["attachment"], info["network"], info["traffic"]) == (attachment, "fabric", "kernel")
        if attachment == "veth":
            (peer,) = [place.name for place in NETWORK.glob("veth*")]
            assert info["host_device"] == peer
        else:
            assert info["host_device"] == parent
        before = one.counters("net1")
        one.send("net1")
        after = one.counters("net1")
        assert after["tx"]["bytes"] - before["tx"]["bytes"] == FRAMES * SIZE
        assert after["tx"]["packets"] - before["tx"]["packets"] == FRAMES
        page = pods_daemon.until(
            "all frames are counted",
            lambda page: page.value("fabric_pod_nic_transmit_bytes_total", **where) == after["tx"]["bytes"],
        )
        assert page.value("fabric_pod_nic_transmit_packets_total", **where) == after["tx"]["packets"]
        assert page.value("fabric_pod_nic_receive_bytes_total", **where) == one.counters("net1")["rx"]["bytes"]
        assert page.value("fabric_pod_nic_link_up", **where) == 1
        assert len(page.names("fabric_pod_nic_", **where)) <= 10
        one.detach("net1")
    pods_daemon.until("the pod is gone", lambda page: not page.names("fabric_pod_nic_", netns=one.namespace))


def named(page, one, **where):
    return page.value("fabric_pod_nic_info", pod_namespace="train", pod_name=one.name, **where)


class Watch:
    """Scrapes all the time: each scrape has to have one series of a metric of a device."""

    def __init__(self, daemon, device: str) -> None:
        self._daemon, self._device = daemon, device
        self._stopping = threading.Event()
        self.missing, self.values = [], []
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        names = [f"fabric_nic_{way}_bytes_total" for way in ("receive", "transmit")] + ["fabric_nic_link_up"]
        while not self._stopping.is_set():
            page = self._daemon.scrape()  # which fails if anything is there twice
            self.missing += [name for name in names if page.value(name, device=self._device) is None]
            self.values.append(page.value("fabric_nic_transmit_bytes_total", device=self._device))


def test_a_card_in_a_pod_has_its_series_on_the_host_without_a_gap(pods_daemon, card):
    name = card.ports[0]
    pods_daemon.until("it is read", lambda page: page.value("fabric_nic_link_up", device=name) == 1)
    with Watch(pods_daemon, name) as watch:
        with pod("with-card") as one:
            one.attach("net1", type="host-device", device=name)
            where = {"netns": one.namespace, "device": "net1"}
            page = pods_daemon.until("the pod has its name", lambda page: named(page, one, **where))
            info = page.info("fabric_pod_nic_info", **where)
            assert (info["attachment"], info["host_device"]) == ("host-device", name)
            assert page.names("fabric_pod_nic_", **where) == {"fabric_pod_nic_info"}
            before = one.counters("net1")
            one.send("net1")
            after = one.counters("net1")
            assert after["tx"]["bytes"] - before["tx"]["bytes"] == FRAMES * SIZE
            page = pods_daemon.until(
                "all frames are counted",
                lambda page: page.value("fabric_nic_transmit_bytes_total", device=name) == after["tx"]["bytes"],
            )
            assert page.info("fabric_nic_info", device=name)["driver"] == "netdevsim"
            assert page.value("fabric_nic_fec_corrected_blocks_total", device=name) is not None  # by ethtool netlink
            one.detach("net1")
            pods_daemon.until("it is back", lambda page: not page.names("fabric_pod_nic_", **where))
        sleep(2)  # nothing is missing after its return either
    assert len(watch.values) > 20
    assert not watch.missing
    assert watch.values == sorted(watch.values)
    assert (NETWORK / name).exists()


def test_a_card_of_a_pod_that_ends_returns_while_the_exporter_runs(pods_daemon, card):
    name = card.ports[0]
    mac = (NETWORK / name / "address").read_text()
    with pod("crashes") as one:
        one.attach("net1", type="host-device", device=name)
        pods_daemon.until("it is found", lambda page: page.value("fabric_pod_nic_info", netns=one.namespace))
        assert mac not in addresses()
        began = monotonic()
        run("ip", "netns", "del", one.namespace)
        until("the card is back", lambda: mac in addresses())
        assert monotonic() - began < 5


def addresses() -> list[str]:
    found = []
    for place in NETWORK.iterdir():
        with suppress(OSError):
            found.append((place / "address").read_text())
    return found


def test_the_first_sample_of_a_pod_comes_soon_after_its_start(pods_daemon):
    with link("dummy7", "type", "dummy"), pod("starts") as one:
        began = monotonic()
        one.attach("net1", **NETWORKS["macvlan"], master="dummy7")
        where = {"netns": one.namespace, "device": "net1"}
        pods_daemon.until("the pod has its name", lambda page: named(page, one, **where))
        assert monotonic() - began < 10  # in the emulated guest
