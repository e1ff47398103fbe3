"""`snapshot --host` of a simulated card and of SoftRoCE: the recording is read as the kernel is."""

from pathlib import Path

import pytest

from exporter import cli
from exporter.core.source import Host
from exporter.sources.nic.source import DEFINITION as NIC
from exporter.sources.pci.source import DEFINITION as PCI
from exporter.sources.rdma.source import DEFINITION as RDMA
from lab.guest import NETWORK, run
from tests.helpers.host_tables import tables


@pytest.mark.parametrize("definition", [NIC, RDMA, PCI], ids=lambda one: one.name)
async def test_sources_read_the_same_of_the_kernel_and_of_its_recording(tmp_path, capsys, card, rxe, definition):
    one, other = card.ports
    run("ethtool", "--set-fec", one, "encoding", "rs")
    made = tmp_path / "made"
    assert cli.main(["snapshot", "--host", str(made)]) == 0
    summary = capsys.readouterr().err.splitlines()
    assert len(summary) == 1, "nothing could not be read"
    assert f"{made}: network devices: 2, RDMA devices: 1, files of sysfs: " in summary[0]
    theirs = await tables(definition, Host("host", Path("/sys"), Path("/proc")))
    ours = await tables(definition, Host("host", made / "sys", Path("/proc"), made))
    assert ours == theirs
    if definition is not PCI:
        assert theirs[0]
    macs = {(NETWORK / name / "address").read_text().strip() for name in (one, other)}
    recorded = [path.read_text() for path in made.rglob("*") if path.is_file()]
    assert len(recorded) > 20
    assert not [text for text in recorded if any(mac in text for mac in macs)]
