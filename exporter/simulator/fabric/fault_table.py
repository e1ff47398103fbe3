"""The faults of the simulated cluster, as data: what each does, where it can be, and which conditions it changes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from exporter.simulator.fabric.conditions import (
    AdapterState,
    CableState,
    JobState,
    MonitoringState,
    RankState,
    SwitchState,
)


class Place(Enum):
    """Kind of target of a fault, as errors and `--help` name it."""

    LINK = "a link, HOST/RAIL or LEAF/SPINE"
    ADAPTER = "an adapter, HOST/RAIL, or HOST for all its adapters"
    HOST = "a host"
    RANK = "a rank"
    LEAF = "a leaf"
    SPINE = "a spine"
    SWITCH = "a switch"
    EVERYWHERE = "no target"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        text: What is wrong.
        place: What it can be at.
        default: Its target where none is given.
        state: State of each target during the fault; of a leaf the state of its uplinks, of a host that of its ranks.
        on: Seconds of each `period` in which it is there.
        period: Seconds; infinite where it is there all the time.
        length: Seconds after which it ends by itself.
    """

    text: str
    place: Place
    default: str
    state: CableState | AdapterState | SwitchState | RankState | JobState | MonitoringState
    on: float = math.inf
    period: float = math.inf
    length: float = math.inf


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        # links
        "degraded-link": Kind("came up at a quarter of its speed", Place.LINK, "gpu-001/3", CableState(speed=0.25)),
        "link-down": Kind("is down; the job uses another adapter", Place.LINK, "gpu-001/6", CableState(up=False)),
        "flapping-link": Kind(
            "is down for 5 of each 20 s, and collectives wait for it",
            Place.LINK,
            "gpu-002/1",
            CableState(up=False, flaps=True),
            on=5.0,
            period=20.0,
        ),
        "dirty-optic": Kind(
            "receives too little light at its lower end and loses frames there",
            Place.LINK,
            "gpu-001/2",
            CableState(loss_down=2e-4, light=0.1),
        ),
        "symbol-errors": Kind(
            "has symbol errors at the port of the switch at its upper end",
            Place.LINK,
            "gpu-003/6",
            CableState(loss_up=1e-4),
        ),
        # adapters
        "missing-port": Kind("fell off its PCIe bus", Place.ADAPTER, "gpu-001/7", AdapterState(present=False)),
        "slow-pcie": Kind(
            "has half its PCIe lanes at half speed, and pauses its leaf",
            Place.ADAPTER,
            "gpu-001/5",
            AdapterState(memory_rate=107e9),
        ),
        "pause-storm": Kind(
            "pauses its leaf for 60 % of all time", Place.ADAPTER, "gpu-002/4", AdapterState(storm=0.6)
        ),
        "short-pauses": Kind(
            "pauses its leaf for 7 % of the time, all of it while there is traffic",
            Place.ADAPTER,
            "gpu-003",
            AdapterState(pausing=0.125),
        ),
        "marks-ignored": Kind(
            "does not reduce its rate when it receives CNPs", Place.ADAPTER, "gpu-004", AdapterState(reacts=False)
        ),
        "gpudirect-off": Kind(
            "copies all data through the memory of the CPU",
            Place.ADAPTER,
            "gpu-002",
            AdapterState(staged=True, memory_rate=160e9),
        ),
        "rail-swapped": Kind(
            "has the cable of the same rail of the other leaf", Place.ADAPTER, "gpu-002/3", AdapterState(swapped=True)
        ),
        # switches
        "one-spine": Kind("gets half of all flows by a bad hash", Place.SPINE, "spine-02", SwitchState(favoured=0.5)),
        "spine-gone": Kind("does not run", Place.SPINE, "spine-03", SwitchState(running=False)),
        "oversubscribed-leaf": Kind(
            "has uplinks of a quarter of the speed", Place.LEAF, "leaf-01", CableState(speed=0.25)
        ),
        "switch-silent": Kind("does not answer its poller", Place.SWITCH, "leaf-01", SwitchState(answers=False)),
        "switch-rebooted": Kind(
            "restarts, for 30 s, and counts from 0", Place.SWITCH, "spine-01", SwitchState(running=False), length=30.0
        ),
        # the job
        "tcp": Kind("the job uses TCP instead of RDMA", Place.EVERYWHERE, "", JobState(rdma=False)),
        "half-adapters": Kind("the job uses every second adapter", Place.EVERYWHERE, "", JobState(every=2)),
        "no-pfc": Kind("the job's RDMA has a priority without PFC", Place.EVERYWHERE, "", JobState(lossless=False)),
        "slower-job": Kind(
            "all ranks compute longer, and steps take 21 % longer", Place.EVERYWHERE, "", JobState(slower=0.225)
        ),
        "late-rank": Kind("computes longer, by half", Place.RANK, "5", RankState(slower=0.5)),
        "late-host": Kind("all its ranks compute longer, by half", Place.HOST, "gpu-003", RankState(slower=0.5)),
        "rotating-late-rank": Kind(
            "each few steps another rank computes longer, by half", Place.EVERYWHERE, "", JobState(rotating=0.5)
        ),
        "hanging-process": Kind("its process hangs", Place.RANK, "19", RankState(stopped=True)),
        "hanging-link": Kind(
            "is up, but nothing that it sends arrives", Place.ADAPTER, "gpu-004/2", AdapterState(forwards=False)
        ),
        # the monitoring
        "poller-gone": Kind("the poller of switches ended", Place.EVERYWHERE, "", MonitoringState(poller=False)),
        "broker-gone": Kind("the broker ended", Place.EVERYWHERE, "", MonitoringState(broker=False)),
    }
)
