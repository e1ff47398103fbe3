"""fabric-exporter: the network of GPU clusters, from the counter to the pager, for Prometheus."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fabric-exporter")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
