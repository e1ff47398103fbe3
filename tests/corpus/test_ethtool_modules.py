"""Dumps of `ethtool -m`: the printed values, encoded to module memory again, decode to the same values."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.ethtool_dumps import OWN_EXPECTATIONS, dumps, folder_of
from tests.helpers.fake_module_memory import (
    BIAS,
    POWER,
    TEMPERATURE,
    VOLTAGE,
    FakeModuleMemory,
)

EXPECTATIONS = json.loads((Path(__file__).parent / "optics_expectations.json").read_text("utf-8"))

QUANTITIES = {
    "Laser bias current": ("bias_amperes", BIAS / 1e3),
    "Laser output power": ("transmit_power_watts", POWER / 1e3),
    "Laser rx power": ("receive_power_watts", POWER / 1e3),
    "Module temperature": ("temperature_celsius", TEMPERATURE),
    "Module voltage": ("voltage_volts", VOLTAGE),
}
"""Quantities that ethtool prints, and the steps in one printed unit: mA, mW, degrees, volts."""

LANE = {
    "bias_amperes": r"Laser (?:tx )?bias current(?: +\(Channel \d+\))? +: ([\d.]+) mA",
    "transmit_power_watts": r"(?:Transmit avg optical|Laser output) power(?: +\(Channel \d+\))? +: ([\d.]+) mW",
    "receive_power_watts": r"(?:Rcvr|Receiver) signal \w+ optical power(?: *\(Channel \d+\))? +: ([\d.]+) mW",
}
LEVELS = ("high alarm", "low alarm", "high warning", "low warning")
STEPS = dict(QUANTITIES.values())
PRINTED = {"temperature_celsius": 1.0, "voltage_volts": 1.0}
"""Printed units in a base unit, unless a thousand."""

PLACES = {
    "QSFP28": {
        "address": 0x50,
        "identity": {"vendor": 148, "part": 168, "revision": 184, "serial": 196},
        "page": 3,
        "thresholds": {"temperature": 128, "voltage": 144, "receive_power": 176, "bias": 184, "transmit_power": 192},
        "values": {"temperature": 22, "voltage": 26, "receive_power": 34, "bias": 42, "transmit_power": 50},
    },
    "SFP": {
        "address": 0x51,
        "identity": {"vendor": 20, "part": 40, "revision": 56, "serial": 68},
        "page": 0,
        "thresholds": {"temperature": 0, "voltage": 8, "bias": 16, "transmit_power": 24, "receive_power": 32},
        "values": {"temperature": 96, "voltage": 98, "bias": 100, "transmit_power": 102, "receive_power": 104},
    },
}


def printed(text):
    """Parse a dump: identity, values and thresholds in printed units, by the names of the fields."""
    words = {"vendor": "name", "part": "PN", "revision": "rev", "serial": "SN"}
    identity = {key: re.search(rf"Vendor {word} *:(.*)", text)[1].strip() for key, word in words.items()}
    values = {
        "temperature_celsius": [float(found) for found in re.findall(r"Module temperature +: ([-\d.]+)", text)],
        "voltage_volts": [float(found) for found in re.findall(r"Module voltage +: ([\d.]+)", text)],
    }
    for name, pattern in LANE.items():
        values[name] = [float(value) for value in re.findall(pattern, text)]
    thresholds = {
        name: [float(re.search(rf"{word} {level} threshold *: ([-\d.]+)", text)[1]) for level in LEVELS]
        for word, (name, _) in QUANTITIES.items()
    }
    return identity, values, thresholds


def memory_of(kind, identity, values, thresholds):
    """Encode the printed values to the memory map of the standard."""
    places = PLACES[kind]
    memory = FakeModuleMemory({"QSFP28": 0x11, "SFP": 0x03}[kind])
    for key, text in identity.items():
        memory.text(0, places["identity"][key], 4 if key == "revision" and kind == "SFP" else 2, "")
        memory.put(0, places["identity"][key], text.encode())
    memory.put(0, *((220, b"\x0c") if kind == "QSFP28" else (92, b"\x60")))
    for name, found in values.items():
        words = [value * STEPS[name] for value in found]
        memory.words(0, places["values"][name.rpartition("_")[0]], words, places["address"])
    for name, found in thresholds.items():
        words = [value * STEPS[name] for value in found]
        memory.words(places["page"], places["thresholds"][name.rpartition("_")[0]], words, places["address"])
    return memory


def as_printed(name, value):
    return round(value, 2) if name == "temperature_celsius" else round(value * PRINTED.get(name, 1000.0), 4)


def test_all_dumps_have_expectations(corpus):
    folder = corpus / "host" / "ethtool-m"
    assert {path.stem for path in folder.iterdir() if path.is_file()} == EXPECTATIONS.keys()
    assert {one["kind"] for one in EXPECTATIONS.values()} <= PLACES.keys() | {"QSFP-DD"}
    assert {path.stem for path in (folder / "eeprom-bin").iterdir()} == set(BINARIES)


def dumps_of(kinds):
    return dumps(
        *(
            {name: one for name, one in expectations.items() if one["kind"] in kinds}
            for expectations in (OWN_EXPECTATIONS["modules"], EXPECTATIONS)
        )
    )


@pytest.mark.parametrize(("origin", "name", "expected"), dumps_of(PLACES))
def test_module_decodes_to_the_printed_values(request, origin, name, expected):
    text = (folder_of(origin, request) / "ethtool-m" / f"{name}.txt").read_text("utf-8")
    identity, values, thresholds = printed(text)
    module = memory_of(expected["kind"], identity, values, thresholds).module()
    assert (module.kind, len(module.lanes), len(module.implausible)) == (
        expected["kind"],
        expected["lanes"],
        expected["implausible"],
    )
    assert identity == {key: getattr(module, key) for key in identity}
    assert module.temperature_celsius == pytest.approx(expected["temperature"], abs=0.005)
    assert module.voltage_volts == pytest.approx(expected["voltage"])
    assert len(module.thresholds) == expected["thresholds"]
    for quantity, levels in module.thresholds.items():
        assert [as_printed(quantity, value) for value in levels] == thresholds[quantity]
    if module.lanes:
        for quantity in LANE:
            assert [as_printed(quantity, getattr(lane, quantity)) for lane in module.lanes] == values[quantity]
    received = [as_printed("receive_power_watts", lane.receive_power_watts) for lane in module.lanes]
    assert received == expected["receive_milliwatts"]


@pytest.mark.parametrize(("origin", "name", "expected"), dumps_of({"QSFP-DD"}))
def test_dump_of_sixteen_lanes_decodes_to_eight(request, origin, name, expected):
    text = (folder_of(origin, request) / "ethtool-m" / f"{name}.txt").read_text("utf-8")
    memory = FakeModuleMemory(0x18).put(0, 166, bytes(45)).put(1, 159, b"\x00\x06")
    for quantity, place in (("transmit_power_watts", 154), ("receive_power_watts", 186)):
        values = [float(value) for value in re.findall(LANE[quantity], text)]
        assert values[:8] == values[8:]
        memory.words(0x11, place, [value * STEPS[quantity] for value in values[:8]])
    lanes = memory.module().lanes
    assert len(lanes) == expected["lanes"]
    assert [as_printed("receive", lane.receive_power_watts) for lane in lanes] == expected["receive_milliwatts"]
    assert as_printed("transmit", lanes[0].transmit_power_watts) == expected["first_transmit_milliwatts"]


BINARIES = (
    "Finisar_FTLC1152RGPL6-FB",
    "Finisar_FTLC1157RGPL6FB1",
    "Innolight_TR-FC13H-HFB",
    "Innolight_TR-FC13T-NAZ",
    "Intel_SPTSBP2CLCKS",
    "Kaiam_XQX5170",
)


@pytest.mark.parametrize(("origin", "name"), [("own", "EX-100G-CWDM4"), *(("corpus", name) for name in BINARIES)])
def test_identity_page_decodes_as_by_another_program(request, origin, name):
    folder = folder_of(origin, request) / "ethtool-m" / "eeprom-bin"
    text = (folder / f"{name}.txt").read_text("utf-8")
    words = {"vendor": "Vendor Name", "part": "Vendor PN", "revision": "Vendor Rev", "serial": "Vendor S/N"}
    expected = {key: re.search(rf'{word} .*: "(.*)"', text)[1] for key, word in words.items()}
    module = FakeModuleMemory(0x11).put(0, 128, (folder / f"{name}.bin").read_bytes()).module()
    assert {key: getattr(module, key) for key in words} == expected
    assert module.kind == "QSFP28"
