"""Where a host may not show all traffic of its jobs, nothing is concluded from the bytes of its ports."""

import pytest

from exporter.core.source import Host
from exporter.daemon import transports
from exporter.sources.nccl.streams import StreamTableBuilder
from tests.meaning.training.test_transport import GIB, ports


@pytest.mark.parametrize(
    ("files", "judged"),
    [
        ([], True),
        ([("sys/module/ib_core/parameters/netns_mode", "Y\n")], True),  # rdma system: netns shared
        ([("sys/module/ib_core/parameters/netns_mode", "N\n")], False),  # netns exclusive
        ([("dev/nvidia-caps-imex-channels/channel0", "")], False),
    ],
    ids=str,
)
def test_hosts_that_may_hide_traffic_are_not_judged(tmp_path, files, judged):
    for name, text in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    tables = []
    host = Host("gpu-1", tmp_path / "sys", tmp_path / "proc", dev=tmp_path / "dev")
    step, state = transports.step_of(host, lambda: tables), None
    for second in range(60):
        tables[:] = [ports(float(second), [0] * 8)]
        streams = StreamTableBuilder()
        streams.add(("llm", "0x1", "AllReduce", "0"), [(second, GIB, 1000, True)], ranks=2, nodes=2, host="gpu-1")
        state, out = step(state, streams.table(float(second)))
    ratios = [column.values for table in out for ending, column in table.columns.items() if ending == "rdma_ratio"]
    assert ratios == ([[0.0]] if judged else [])
