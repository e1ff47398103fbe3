"""What Multus noted of real pods: as results of libcni, and as a reply of kubelet, it gives the same devices."""

import base64
import json

from exporter.linux.pci import ADDRESS
from exporter.sources.pods.cni_results import Attachment, parse_result
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_resources import grants_by_device, parse_list
from tests.helpers.kubelet import pod, reply

OWNER = PodOwner("grout", "grout-0")


def statuses(corpus):
    """Return the networks of the annotation network-status."""
    return json.loads((corpus / "host" / "misc" / "multus-network-status.json").read_text("utf-8"))


def pci_of(status):
    return status.get("device-info", {}).get("pci", {}).get("pci-address", "")


def test_results_of_networks_of_a_real_pod_are_parsed(corpus):
    found, expected = [], []
    for status in statuses(corpus):
        name = status["name"].rpartition("/")[2]
        config = {"name": name, "plugins": [{"type": "sriov", "deviceID": pci_of(status)}]}
        interface = {"name": status["interface"], "mac": status["mac"], "sandbox": "/var/run/netns/1"}
        cached = {
            "kind": "cniCacheV1",
            "config": base64.b64encode(json.dumps(config).encode()).decode(),
            "ifName": status["interface"],
            "networkName": name,
            "cniArgs": [["K8S_POD_NAMESPACE", OWNER.pod_namespace], ["K8S_POD_NAME", OWNER.pod_name]],
            "result": {"interfaces": [interface]},
        }
        result = parse_result(json.dumps(cached).encode())
        assert result.pod == OWNER
        found += result.attachments
        expected.append(Attachment(status["interface"], name, "sriov", pci_of(status), status["mac"]))
    assert len(expected) == 3
    assert found == expected


def test_devices_of_a_real_pod_are_those_of_its_container(corpus):
    addresses = [pci_of(status) for status in statuses(corpus) if pci_of(status)]
    assert len(addresses) == 2
    assert all(ADDRESS.fullmatch(one) for one in addresses)
    grants = parse_list(reply(pod("grout", "grout-0", grout={"openshift.io/sriov": addresses})))
    assert {device: one.owner for device, (one,) in grants_by_device(grants).items()} == dict.fromkeys(
        addresses, OWNER._replace(container="grout")
    )
