"""Configuration of the source `pods`."""

from exporter.core.source import Options

NAMED = ("/var/run/netns",)
"""Where `ip netns` and container runtimes mount the namespaces."""


class PodsOptions(Options, frozen=True):
    """Configuration of `sources.pods`; include and exclude are names of network devices inside the pods.

    Attributes:
        namespaces: Folders whose files are network namespaces.
        processes: Whether the namespaces of all processes are read too, from procfs.
    """

    enabled: bool = False
    namespaces: tuple[str, ...] = NAMED
    processes: bool = False
