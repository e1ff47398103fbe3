"""Configuration of the source `pods`."""

from exporter.core.source import Options

NAMED = ("/var/run/netns",)
"""Where `ip netns` and container runtimes mount the namespaces."""

RESULTS = ("/var/lib/cni/results", "/var/lib/cni/multus/results")
"""Where libcni keeps results of the runtime's network, and of those that Multus adds."""

LOGS = "/var/log/pods"
"""Where kubelet creates a folder for each pod."""


class PodsOptions(Options, frozen=True):
    """Configuration of `sources.pods`; include and exclude are names of network devices inside the pods.

    Attributes:
        namespaces: Folders whose files are network namespaces.
        processes: Whether the namespaces of all processes are read too, from procfs.
        results: Folders in which libcni keeps the results of attachments.
        logs: Folder of the logs of pods, whose names are those of the pods; empty to leave it out.
        kubelet: Socket of kubelet's pod-resources API, /var/lib/kubelet/pod-resources/kubelet.sock unless kubelet has
            another root folder; needs root, and grpcio. Empty to leave it out.
    """

    enabled: bool = False
    namespaces: tuple[str, ...] = NAMED
    processes: bool = False
    results: tuple[str, ...] = RESULTS
    logs: str = LOGS
    kubelet: str = ""
