"""Reader of eAPI with releases or hardware that need alternative commands.

All data is synthetic, in the structures of recordings and of programs that read them.
"""

import pytest

from exporter.sources.switch.merge import Family, Support
from exporter.sources.switch.readers import command_reader
from exporter.sources.switch.readers.eapi.reader import (
    DROPS,
    DROPS_TEXT,
    DROPS_VOQ,
    INTERFACES,
    PFC,
    PFC_DETAIL,
    TRANSCEIVER,
    TRANSCEIVER_DOM,
    VERSION,
)
from tests.simulators.eapi import EapiSwitch
from tests.sources.switch.test_eapi import (
    PASSWORD,
    results,
    rows,
    started,
)

VIRTUAL = {
    "interfaces": {
        "Ethernet1/1": {
            "trafficClasses": {
                "TC3": {
                    "ingressVoqCounters": {"countersSum": {"droppedPackets": 40}},
                    "egressQueueCounters": {"countersSum": {"droppedPackets": 2}},
                }
            }
        }
    }
}
TEXT = "Port      InDropPkts  OutUcDropPkts  OutMcDropPkts\nEt1/1              9             70              7\n"


def model(*, without=(), **more):
    remaining = {command: answer for command, answer in results().items() if command not in without}
    return EapiSwitch(answers=remaining | more.pop("answers", {}), password=PASSWORD, **more)


async def test_drops_of_virtual_output_queues(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model(without=[DROPS], answers={DROPS_VOQ: VIRTUAL})
    async with started(switch) as reader:
        for _ in range(2):
            harvest = await reader.read()
            assert harvest.failures == []
            assert rows(harvest)["queue", "Ethernet1/1", "3"] == {"queue_full_discards_total": 42}
            assert rows(harvest)["Ethernet1/1",]["congestion_discards_total"] == 42
            assert harvest.families[Family.QUEUES] is Support.COUNTED
            clock.now += 15
            commands = [command for request in switch.requests for command in request]
            switch.requests.clear()
    assert DROPS not in commands, "an unsupported command is not run again"
    assert (commands.count(DROPS_VOQ), commands.count(DROPS_TEXT)) == (1, 0)


async def test_drops_that_are_available_only_as_text():
    switch = model(without=[DROPS], texts={DROPS_TEXT: TEXT})
    switch.faults.errors[DROPS] = (1003, "unconverted command", ["This is an unconverted command"])
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    found = rows(harvest)
    assert found["Ethernet1/1",]["congestion_discards_total"] == 77
    assert "congestion_discards_total" not in found["Ethernet2/1",], "the text has no line of this port"
    assert not any("queue_full_discards_total" in row for row in found.values())
    assert harvest.families[Family.QUEUES] is Support.COUNTED


async def test_drops_without_any_command():
    async with started(model(without=[DROPS])) as reader:
        harvest = await reader.read()
    assert harvest.failures == []
    assert harvest.families[Family.QUEUES] is Support.UNSUPPORTED
    assert "congestion_discards_total" not in rows(harvest)["Ethernet1/1",]


async def test_a_failed_command_has_no_alternative():
    switch = model(answers={DROPS_VOQ: VIRTUAL})
    switch.faults.errors[DROPS] = (1001, "internal error", ["the agent is not running"])
    async with started(switch) as reader:
        harvest = await reader.read()
    assert harvest.families[Family.QUEUES] is Support.FAILED
    assert [failure.device for failure in harvest.failures] == [DROPS]
    assert [DROPS_VOQ] not in switch.requests


@pytest.mark.parametrize("has_dom", [True, False])
async def test_modules_with_all_lanes_or_with_one(has_dom):
    channels = {"1": -3.0, "2": -30.0, "3": -45.0}
    parameters = {"rxPower": {"unit": "dBm", "channels": channels}, "temperature": {"channels": {"-": 40.5}}}
    all_lanes = {"interfaces": {"Ethernet1/1": {"parameters": parameters}}}
    flat = {"interfaces": {"Ethernet1/1": {"rxPower": -3.0, "temperature": 40.5}}}
    switch = model(
        without=[TRANSCEIVER_DOM], answers={TRANSCEIVER: flat} | ({TRANSCEIVER_DOM: all_lanes} if has_dom else {})
    )
    async with started(switch, optics=True) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    power = {key[2]: row["module_lane_receive_power_watts"] for key, row in found.items() if key[0] == "lane"}
    assert power.keys() == ({"1", "2", "3"} if has_dom else {"1"})
    assert power["1"] == pytest.approx(0.000501, rel=1e-2)
    assert power.get("3", 0.0) == 0.0, "no light"
    assert found["Ethernet1/1",]["module_temperature_celsius"] == 40.5
    assert harvest.families[Family.OPTICS] is Support.COUNTED
    assert harvest.failures == []


async def test_pfc_by_priority_in_the_structure_of_other_programs():
    by_priority = {"3": {"rxFrames": 11, "txFrames": 12}}
    switch = model(answers={PFC_DETAIL: {"interfaces": {"Ethernet1/1": {"priorities": by_priority}}}})
    async with started(switch) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert harvest.failures == []
    assert found["priority", "Ethernet1/1", "3"] == {"receive_pfc_frames_total": 11, "transmit_pfc_frames_total": 12}
    assert "receive_pfc_all_priorities_frames_total" not in found["Ethernet1/1",]


async def test_the_switchs_own_chassis_identifier():
    version = {**results()[VERSION], "systemMacAddress": "444c.a8cd.337e"}
    async with started(model(answers={VERSION: version})) as reader:
        harvest = await reader.read()
        assert harvest.device.chassis == "44:4c:a8:cd:33:7e"


async def test_a_malformed_port_affects_only_itself_and_is_reported():
    switch = model()
    switch.answers[INTERFACES]["interfaces"]["Ethernet2/1"] = "malformed"
    switch.answers[PFC] = {"interfaceCounters": {"Ethernet1/1": {"rxFrames": -1, "txFrames": 32}}}
    async with started(switch) as reader:
        harvest = await reader.read()
    found = rows(harvest)
    assert ("Ethernet2/1",) not in found
    assert "receive_pfc_all_priorities_frames_total" not in found["Ethernet1/1",]
    assert found["Ethernet1/1",]["transmit_pfc_all_priorities_frames_total"] == 32
    assert {(one.device, one.reason) for one in harvest.failures} == {(INTERFACES, "malformed"), (PFC, "malformed")}


async def test_after_an_upgrade_no_alternative_command_is_run(stopped_clock):
    clock = stopped_clock(command_reader)
    switch = model(without=[DROPS], texts={DROPS_TEXT: TEXT})
    async with started(switch) as reader:
        await reader.read()
        switch.answers[DROPS] = results()[DROPS]
        clock.now += command_reader.UNSUPPORTED_RETRY_SECONDS
        switch.requests.clear()
        found = rows(await reader.read())
    assert found["Ethernet1/1",]["congestion_discards_total"] == 9
    assert not {DROPS_VOQ, DROPS_TEXT} & {command for request in switch.requests for command in request}
