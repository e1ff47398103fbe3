"""All checks, in the order in which they are shown."""

from exporter.preflight import (
    device_nodes,
    expectations,
    gpudirect,
    host_settings,
    infiniband,
    links,
    nccl_settings,
    pci_settings,
    roce,
)
from exporter.preflight.results import Check

CHECKS: tuple[Check, ...] = (
    *expectations.CHECKS,
    *links.CHECKS,
    *pci_settings.CHECKS,
    *gpudirect.CHECKS,
    *device_nodes.CHECKS,
    *roce.CHECKS,
    *infiniband.CHECKS,
    *host_settings.CHECKS,
    *nccl_settings.CHECKS,
)
"""A new family adds its line here."""
