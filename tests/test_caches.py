"""What grows with what devices and jobs report: each mapping that is filled from call to call is listed with its bound.

A new one fails the test until it is listed here, with what bounds it and when its entries go.
"""

import importlib

import pytest

from tests.helpers.caches import caches_of
from tests.helpers.paths import ROOT

OFFLINE = {"simulator", "commands", "config", "hook"}
"""Packages that run for one command, for a demo, or inside a job."""

DECLARED = "keys of this program or of its configuration"
ONE_CALL = "made for one reading, and dropped with it"
PRESENT = "what is not in the last reading is removed"

UNLIMITED = {
    "sums by kind and power of two, removed with the last part of the sum": """
        meaning.training.records.Communicator.bus meaning.training.records.Tick.bus
    """,
    "three size classes of each kind of collective": "meaning.training.durations.Durations.classes",
    DECLARED: """
        core.definition.SharedObjects._objects core.poller.Poller._exported_metrics core.supervision.Supervisor.restarts
        daemon.running.RunningSources._running linux.mad.umad.UmadPort._agents mqtt.subscriber.Subscriber.refused
        outputs.text.Renderer._heads outputs.webapp.Renderings._inline outputs.webapp.Renderings._running
        sources.common.in_use.InUse._used sources.ibfabric.tables.FabricTables._keepers
        sources.nccl.readers.comma.CommaFeed._outcomes
        sources.nccl.readers.flight_recorder.FlightRecorderFeed._entries
        sources.nccl.readers.flight_recorder.FlightRecorderFeed._outcomes sources.nccl.readers.hook.HookFeed._lost
        sources.nccl.readers.hook.HookFeed._uses sources.nccl.readers.inspector.InspectorFeed._outcomes
        sources.nccl.readers.xpu_timer.XpuTimerFeed._lost
        sources.nccl_facts.inspector_windows.TextfileWindows._lines
        sources.nccl_facts.ras_poller.RasPoller.outcomes sources.nccl_facts.source.NcclFactsSource._lines
        sources.nic.tables.NicTables._keepers sources.rdma.tables.RdmaTables._keepers
        sources.switch.merge.ReadingMerger._keepers sources.switch.merge.ReadingMerger._keys
        sources.switch.merge.ReadingMerger._owners sources.switch.port_labels.PortLabels._in_use
        sources.switch.readers.command_reader.CommandReader._retry_at
        sources.switch.readers.command_reader.CommandReader._support
        sources.switch.readers.nvue.reader.NvueReader._logged_paths
        sources.switch.readers.onyx.reader.OnyxPoll.support sources.switch.readers.onyx.reader.OnyxReader._support
        sources.switch.readers.snmp.counters.SnmpCounters._cells
        sources.switch.readers.snmp.counters.SnmpCounters._deduplicated
        sources.switch.readers.snmp.counters.SnmpCounters._empty
        sources.switch.readers.snmp.counters.SnmpCounters._missing
        sources.switch.readers.snmp.counters.SnmpCounters._next_read
        sources.switch.readers.snmp.counters.SnmpCounters._parts
        sources.switch.readers.snmp.counters.SnmpCounters._rows
        sources.switch.readers.snmp.counters.SnmpCounters._support
        sources.switch.readers.snmp.counters.SnmpCounters._updated
        sources.switch.registry.SwitchRegistry._label_owners sources.switch.registry.SwitchRegistry.known
        sources.switch.traps.TrapSource._buckets sources.switch.traps.TrapSource._counts
        sources.switch.traps.TrapSource._polled_at
    """,
    ONE_CALL: """
        core.table.TableBuilder.cells meaning.training.paths.Paths._by_host meaning.training.paths.Paths._by_port
        meaning.training.paths.Paths._by_switch meaning.training.paths.Paths._placed snmp.get.Get._values
        snmp.transport.PendingExchange._sent sources.bursts.source.BurstSource._failures
        sources.collector.source.CollectorSource._claimants sources.common.job_files._Walk._entries
        sources.common.job_files._Walk._selected sources.common.job_files._Walk.files
        sources.common.job_readers.JobFilesPoll.parsed sources.common.job_readers.JobLogs._gone
        sources.ibfabric.counters.CounterRead._awaiting_capabilities
        sources.ibfabric.counters.CounterRead._held_back sources.ibfabric.counters.CounterRead.counts
        sources.ibfabric.counters.CounterRead.problems sources.ibfabric.discovery.Discovery.problems
        sources.ibfabric.discovery.Discovery.visited sources.ibfabric.link_poll.LinkPoll._requested
        sources.ibfabric.link_poll.LinkPoll.changed_lids sources.ibfabric.link_poll.LinkPoll.problems
        sources.ibfabric.model.IbFabric.leaves sources.ibfabric.rendering._Renderer.sides
        sources.lldp.neighbour_cache.NeighbourCache._errors sources.nccl.processes.ProcessRegistry._by_identity
        sources.nccl.readers.feed.ProcessReport.streams sources.nccl.readers.feed.ProcessReport.totals
        sources.nccl.streams.StreamTableBuilder._rows sources.nccl_facts.inspector_windows.Extremes.gpus
        sources.switch.readers.onyx.rows.OnyxRows._pfc switch_api.onyx.tables._Rows.ports
        linux.recordings.recording_folder.Recordings._cache linux.rdma_reader.ReplayRdma._broken
        sources.nccl.readers.flight_recorder._Memberships._found
        sources.switch.readers.snmp.sensor_locations._Entities._found sources.nccl.timing_socket.TimingSocket._raw
    """,
    PRESENT: """
        daemon.judge.Judge._given daemon.judge.Judge._restored daemon.relay.Relay._lost daemon.probe.Prober._closing
        linux.ethtool_ioctl.EthtoolIoctl._names linux.mad.window.RequestWindow._destinations
        linux.mad.window.RequestWindow._in_flight linux.mad.window.RequestWindow.unresponsive
        linux.rdma_reader.KernelRdma._layouts mqtt.job_levels.JobLevels._published mqtt.publisher.Publisher._published
        outputs.listener.Listener.handshakes outputs.text.Renderer._cache snmp.transport.UdpTransport._pending
        sources.bursts.device.SampledDevice._ports sources.bursts.source.BurstSource._devices
        sources.bursts.source.BurstSource._rows sources.common.job_readers.JobLogs.files
        sources.ibfabric.sweep.Sweeper._unreachable sources.ibfabric.tables.FabricTables._widths
        sources.nccl.source.NcclSource._facts sources.nic.device.NicDevice._ever_counted
        sources.nic.device_queries.DeviceQueries._cache sources.nic.device_queries.DeviceQueries._failed
        sources.nic.device_queries.DeviceQueries.answered sources.nic.source.NicSource._devices
        sources.pods.namespace_readings.NamespaceReadings.readings sources.rdma.moved_devices.MovedRdma.devices
        sources.optics.source.OpticsSource._cages
        sources.rdma.counters.CounterReader._files
        sources.rdma.counters.CounterReader._refused sources.rdma.queue_pairs.QueuePairPoller._queue_pairs
        sources.rdma.queue_pairs.QueuePairPoller._unsupported sources.rdma.source.RdmaSource._devices
        sources.rdma.tables.RdmaTables._columns sources.rdma.tables.RdmaTables._parts
        sources.switch.queues.PortSums._counted sources.switch.readers.nvue.reader.NvueReader._neighbours
        sources.switch.readers.nvue.reader.NvueReader._reads_while_down
        sources.switch.readers.nvue.reader.NvueReader._unavailable
        sources.switch.round_robin.RoundRobin._durations sources.switch.round_robin.RoundRobin._started
        core.shares.Shares._held daemon.lookups.LookupLoop._running daemon.lookups.Lookups._running
        meaning.training.own_lateness.RecentCosts.costs
        mqtt.fair_queue.FairQueue._messages outputs.fair_queue.FairQueue._waiting outputs.webapp.WebApp._scrapes
    """,
}
"""Mappings by why they do not grow."""

LIMITED = {
    "core.shares.Admission._alone": ("limit of each call", "PROVEN_SECONDS"),
    "core.shares.Admission._standings": ("limit of each call", "PROVEN_SECONDS"),
    "daemon.log.LoopErrorHandler._logged": ("errors are of this program", "REPEAT_SECONDS"),
    "daemon.probe.Prober._cache": ("MAX_CACHED", "the least recently used goes first"),
    "linux.rewritten_files.RewrittenFiles.files": ("MAX_FILES", PRESENT),
    "linux.tail.Tail.files": ("MAX_FILES", PRESENT),
    "meaning.ports.states.PortStateMemory.ports": ("MAX_PORTS", PRESENT),
    "meaning.training.alignment.Collectives.jobs": ("MAX_JOBS", "FORGET_SECONDS"),
    "meaning.training.past.Past.levels": ("MAX_LEVELS", "the one that was not used for longest goes first"),
    "meaning.training.runs.Claims._hosts": ("MAX_RANKS", "VALID_SECONDS"),
    "meaning.training.transport.JobTraffic.moved": ("MAX_RANKS", "KEPT_SECONDS"),
    "meaning.training.step_budget.StepMeter.samples": ("ranks of one job", PRESENT),
    "mqtt.dedup.Deduplicator._jobs": ("MAX_JOBS", "IDLE_SECONDS"),
    "mqtt.fair_queue.FairQueue._credits": ("MAX_CREDITS", "the least recently used goes first"),
    "mqtt.job_levels.JobLevels._received": ("MAX_JOBS", "the least recently received goes first"),
    "mqtt.publisher.Publisher._sequences": ("MAX_JOBS", "the least recently used goes first"),
    "mqtt.retained_state._ExpiringEntries._entries": ("MAX_HOSTS", "expiry of each object"),
    "mqtt.subscriber.Subscriber._open": ("MAX_OPEN", "read to their end"),
    "nccl.benchmark.BenchmarkRun.models": ("MAX_MODELS", ONE_CALL),
    "outputs.webauth.BasicAuth._accepted": ("configured users", "replaced with the users"),
    "snmp.exchange.AgentState.indexes": ("MAX_CACHED_INDEXES", "CACHED_INDEX_POLLS"),
    "snmp.usm.PasswordKeys._keys": ("MAX_KEYS", "KEY_SECONDS"),
    "sources.collector.source.CollectorSource._disputed": ("MAX_DISPUTED", "the oldest goes first"),
    "sources.collector.source.CollectorSource._senders": ("MAX_SENDERS", "the oldest goes first"),
    "sources.collector.source.CollectorSource._lost": ("MAX_SENDERS", "the oldest goes first"),
    "sources.common.moved_devices.MovedDevices._names": ("MAX_NAMES", "the oldest goes first"),
    "sources.lldp.neighbour_cache.NeighbourCache._neighbours": ("MAX_NEIGHBOURS", "time to live of each"),
    "sources.nccl.processes.ProcessRegistry._found": ("MAX_PROCESSES", "EXPIRY_SECONDS"),
    "sources.nccl.readers.comma.CommaFeed._jobs": ("MAX_JOBS", PRESENT),
    "sources.nccl.readers.flight_recorder.FlightRecorderFeed._completed": ("MAX_RANKS", PRESENT),
    "daemon.known_links.KnownLinks._gone": ("MAX_GONE", "KEPT_SECONDS"),
    "sources.nccl.readers.recorder_progress.HeldProgress._held": ("MAX_HELD", "HOLD_SECONDS"),
    "sources.nccl.readers.recorder_progress.HeldProgress._waits": ("jobs of those held", "HOLD_SECONDS"),
    "sources.nccl.readers.hook.HookFeed._numberings": ("MAX_TRACKED_PROCESSES", "the oldest goes first"),
    "sources.nccl.readers.xpu_timer.XpuTimerFeed._readings": ("MAX_ROWS", PRESENT),
    "sources.nccl.timing_socket.TimingSocket._senders": ("MAX_SENDERS", "EXPIRY_SECONDS"),
    "sources.nccl_facts.log_repeats.WatchdogRepeats._logs": ("MAX_LOGS", "FORGET_SECONDS"),
    "sources.nccl_facts.log_state.LogState._hosts": ("MAX_HOSTS", PRESENT),
    "sources.nccl_facts.log_state.LogState._jobs": ("MAX_JOBS", PRESENT),
    "sources.nccl_facts.log_state.LogState.counts": ("MAX_COUNTED", PRESENT),
    "sources.nccl_facts.log_state.LogState.groups": ("MAX_PROCESSES", PRESENT),
    "sources.nccl_facts.log_state.LogState.versions": ("one a log", PRESENT),
    "sources.switch.port_labels.PortLabels._labels": ("MAX_PORTS", "NAME_SECONDS"),
    "sources.switch.readers.snmp.counters.SnmpCounters._absent": ("MAX_INSTANCES", "until the next inventory"),
}
"""Mappings with a bound and an age: names of constants of the module, or words."""

LISTED = {name: reason for reason, names in UNLIMITED.items() for name in names.split()}


def found():
    paths = [path for path in (ROOT / "exporter").rglob("*.py") if path.parent.name != "exporter"]
    modules = {path.relative_to(ROOT / "exporter").with_suffix(""): path for path in sorted(paths)}
    return {
        f"{'.'.join(module.parts)}.{name}".replace(".__init__", "")
        for module, path in modules.items()
        if module.parts[0] not in OFFLINE
        for name in caches_of(path.read_text("utf-8"))
    }


def test_each_mapping_that_is_filled_from_call_to_call_is_listed_with_its_bound():
    listed = LISTED.keys() | LIMITED.keys()
    assert found() - listed == set(), "list each with its bound and its age"
    assert listed - found() == set(), "a reason is listed for what is no longer there"
    assert not LISTED.keys() & LIMITED.keys()


@pytest.mark.parametrize("name", LIMITED)
def test_each_bound_and_age_is_a_number_above_zero(name):
    module = importlib.import_module(f"exporter.{name.rsplit('.', 2)[0]}")
    constants = [word for word in LIMITED[name] if word.isupper()]
    assert constants or name.endswith(("versions", "samples", "_accepted"))
    for constant in constants:
        assert getattr(module, constant) > 0


@pytest.mark.parametrize(
    "added",
    ["self._seen[key] = 1", "self._seen.setdefault(key, 1)", "self._seen |= other", "self._seen[key][0] += 1"],
)
@pytest.mark.parametrize("empty", ["{}", "set()", "defaultdict(list)", "Counter()"])
def test_a_mapping_that_is_filled_is_found(empty, added):
    start = f"class Cache:\n    def __init__(self):\n        self._seen = {empty}\n"
    source = f"{start}    def add(self, key, other):\n        {added}\n"
    assert caches_of(source) == ["Cache._seen"]


def test_a_field_of_a_dataclass_is_found():
    field = "    seen: dict[str, int] = field(default_factory=dict)\n"
    source = f"class Cache:\n{field}    def add(self):\n        self.seen[1] = 2\n"
    assert caches_of(source) == ["Cache.seen"]
