"""Metrics of NICs in pods (`fabric_pod_nic_`), and of the virtual functions of a host (`fabric_pod_`)."""

from types import MappingProxyType

from exporter.core import vocabulary
from exporter.core.vocabulary import gauge, info

COUNTERS = MappingProxyType(
    {
        "receive_bytes_total": "rx_bytes",
        "transmit_bytes_total": "tx_bytes",
        "receive_packets_total": "rx_packets",
        "transmit_packets_total": "tx_packets",
        "receive_discards_total": "rx_dropped",
        "transmit_discards_total": "tx_dropped",
        "receive_errors_total": "rx_errors",
        "transmit_errors_total": "tx_errors",
    }
)
"""Counters by ending, with their names in struct rtnl_link_stats64 and in VirtualFunction."""

_SOURCE = (
    " Where the label traffic of fabric_pod_nic_info is kernel: {name} of rtnl_link_stats64, without RDMA; where it is"
    " function: IFLA_VF_STATS of the virtual function, RDMA included where the device counts it."
)

_HELPS = MappingProxyType(
    {
        ending: text + _SOURCE.format(name=COUNTERS[ending])
        for ending, text in {
            "receive_bytes_total": "Bytes received by the pod.",
            "transmit_bytes_total": "Bytes transmitted by the pod.",
            "receive_packets_total": "Packets received by the pod.",
            "transmit_packets_total": "Packets transmitted by the pod.",
            "receive_discards_total": "Packets received for the pod but dropped.",
            "transmit_discards_total": "Packets transmitted by the pod but dropped.",
        }.items()
    }
)

_ORIGINS = MappingProxyType(
    {
        ending: (f"rtnetlink {name}",)
        if name.endswith("_errors")
        else (f"rtnetlink {name}", f"virtual functions: rtnetlink IFLA_VF_STATS {name}")
        for ending, name in COUNTERS.items()
    }
)

NIC = vocabulary.schema(
    "fabric_pod_nic_",
    ("netns", "device"),
    [*COUNTERS, "link_up"],
    helps={
        **_HELPS,
        "receive_errors_total": "Packets received for the pod with an error (rtnl_link_stats64 rx_errors).",
        "transmit_errors_total": "Packets of the pod not transmitted due to an error (rtnl_link_stats64 tx_errors).",
        "link_up": "Whether the link has a carrier and its operational state (RFC 2863) is up or unknown: 1, else 0.",
    },
    origins={**_ORIGINS, "link_up": ["rtnetlink IFLA_OPERSTATE"]},
    details=(
        "receive_errors_total",
        "transmit_errors_total",
        "receive_packets_per_second",
        "transmit_packets_per_second",
    ),
)

INFO = vocabulary.schema(
    "fabric_pod_nic_",
    ("netns", "device", "pod_namespace", "pod_name", "container_name"),
    own={
        "info": info(
            "A network device of a pod. The label attachment is macvlan, ipvlan, vlan, veth, netkit, ipoib, sr-iov,"
            " subfunction, host-device for a card that was moved as a whole, whose traffic the metrics fabric_nic have"
            " under host_device, or host-network for a pod in the namespace of the host, which has no device of its"
            " own. rdma is shared where the RDMA device is that of the host's device, which others may use too, and own"
            " where it is that of the pod's function. traffic is kernel if bytes and packets are those of the kernel's"
            " network stack, function if they are those of the virtual function. Labels are empty where not known.",
            "host",
            "attachment",
            "network",
            "host_device",
            "pci",
            "function",
            "mac",
            "pkey",
            "rdma_device",
            "rdma",
            "traffic",
        )
    },
    origins={"info": ["rtnetlink", "libcni", "control groups", "folders of logs", "kubelet"]},
)

FUNCTIONS = vocabulary.schema(
    "fabric_pod_",
    ("device",),
    own={
        "virtual_functions": gauge("Virtual functions that the port has (sriov_numvfs)."),
        "virtual_functions_limit": gauge("Virtual functions that the port can have (sriov_totalvfs)."),
        "virtual_functions_in_pods": gauge(
            "Virtual functions of the port whose network device is in a pod. One without a network device, as of"
            " vfio-pci, is not counted."
        ),
    },
    origins={
        "virtual_functions": ["sriov_numvfs"],
        "virtual_functions_limit": ["sriov_totalvfs"],
        "virtual_functions_in_pods": ["rtnetlink"],
    },
)

ASSIGNED = vocabulary.schema(
    "fabric_pod_",
    ("pci", "pod_namespace", "pod_name", "container_name"),
    own={
        "device_info": info(
            "A PCI function of a network card that one container was given, also one without a network device, as with"
            " vfio-pci. Labels are empty where not known. The label pci is that of fabric_rdma_info.",
            "host",
        )
    },
    origins={"device_info": ["libcni", "kubelet"]},
)

SHARES = vocabulary.schema(
    "fabric_pod_",
    ("resource", "pod_namespace", "pod_name", "container_name"),
    own={
        "device_shares": gauge(
            "Shares of a pool of devices that a container was given. All devices of the pool are in each of its"
            " containers, so the traffic of such a device is that of no single one."
        )
    },
    origins={"device_shares": ["kubelet: device IDs that are bare numbers, as of k8s-rdma-shared-dev-plugin"]},
)
