"""The ports at the other end of this host's links, from LLDP frames that systemd-networkd stored."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.linux.netlink.rtnetlink import NetworkLink
from exporter.preflight.facts import SwitchPortFacts
from exporter.sources.lldp.networkd_files import parse_file, read_files


def read_switch_ports(folder: Path, links: Sequence[NetworkLink]) -> Mapping[int, SwitchPortFacts]:
    """Return the neighbour by ifindex where exactly one is known; blocks. The source `lldp` reports what fails."""
    try:
        files = read_files(folder, frozenset(link.ifindex for link in links))
    except OSError:
        return {}
    found = {}
    for ifindex, content in files.items():
        neighbours = [] if isinstance(content, OSError) else parse_file(*content)[0]
        if len(neighbours) == 1:
            (one,) = neighbours
            name = f"{one.name or one.chassis} {one.port}"
            found[ifindex] = SwitchPortFacts(name=name, pfc=one.settings.pfc, max_frame=one.settings.max_frame)
    return found
