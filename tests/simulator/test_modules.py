"""The memory of simulated modules: bytes where CMIS has them, and what the exporter's decoder makes of them."""

import json

import pytest

from exporter.linux import optics
from exporter.linux.optics.module import HEADER, OpticalLane
from exporter.linux.recordings.module_memory import parse_memory
from exporter.simulator.modules import LaneReadings, memory

LIGHTS = [
    LaneReadings(1.1e-3, 1.3e-3, 0.08),
    LaneReadings(0.06e-3, 1.26e-3, 0.081),
    LaneReadings(1.0e-3, 0.0, 0.0),
    LaneReadings(0.0, 1.2e-3, 0.1),
]


@pytest.fixture
def made():
    return memory("SIM0007", -3.5, 3.29, LIGHTS)


def byte(made, key, place):
    """Return one byte as text; `place` is that of the standard, which counts upper halves from 128."""
    return made[key].split()[place % 128]


def word(made, key, place):
    return int(byte(made, key, place) + byte(made, key, place + 1), 16)


def test_words_stand_where_the_standard_has_them(made):
    assert byte(made, "lower", 0) == "19"  # OSFP
    assert byte(made, "lower", 2) == "00"  # paged
    assert word(made, "lower", 14) == 0x10000 - 896  # -3.5 degrees in 1/256
    assert word(made, "lower", 16) == 32900  # 100 microvolts
    assert [word(made, "page_11h_bank_0", place) for place in range(186, 194, 2)] == [11000, 600, 10000, 0]
    assert [word(made, "page_11h_bank_0", place) for place in range(154, 162, 2)] == [13000, 12600, 0, 12000]
    assert [word(made, "page_11h_bank_0", place) for place in range(170, 178, 2)] == [
        20000,
        20250,
        0,
        25000,
    ]  # 2 x 2 uA
    assert [word(made, "page_02h", place) for place in range(192, 200, 2)] == [32000, 1000, 25000, 2000]
    assert (byte(made, "page_01h", 159), byte(made, "page_01h", 160)) == ("03", "0f")
    assert byte(made, "page_00h", 210) == "f0"


@pytest.mark.parametrize(
    ("key", "first", "at"), [("page_00h", 128, 222), ("page_01h", 130, 255), ("page_02h", 128, 255)]
)
def test_checksums_are_right(made, key, first, at):
    total = sum(int(byte(made, key, place), 16) for place in range(first, at))
    assert int(byte(made, key, at), 16) == total % 256


def test_latched_flags_are_not_in_it(made):
    hidden = {key: [place for place, text in enumerate(half.split()) if text == ".."] for key, half in made.items()}
    assert hidden == {
        "lower": list(range(8, 14)),
        "page_00h": [],
        "page_01h": [],
        "page_02h": [],
        "page_11h_bank_0": list(range(6, 26)),
    }


def test_the_decoder_reads_what_was_written(made):
    module = decoded(made)
    assert (module.kind, module.vendor, module.part) == ("OSFP", "SIMULATED OPTICS", "SIM-OSFP-400-DR4")
    assert (module.serial, module.revision, module.implausible) == ("SIM0007", "A1", ())
    assert (module.temperature_celsius, module.voltage_volts) == (-3.5, 3.29)
    assert module.lanes == (
        OpticalLane(1, 1.1e-3, 1.3e-3, 0.08),
        OpticalLane(2, 0.06e-3, 1.26e-3, 0.081),
        OpticalLane(3, 1.0e-3, 0.0, 0.0),
        OpticalLane(4, 0.0, 1.2e-3, 0.1),
    )
    assert tuple(module.thresholds["temperature_celsius"]) == (80.0, -10.0, 75.0, -5.0)
    assert tuple(module.thresholds["voltage_volts"]) == (3.63, 2.97, 3.46, 3.13)
    assert tuple(module.thresholds["bias_amperes"]) == (0.13, 0.03, 0.12, 0.04)
    assert tuple(module.thresholds["transmit_power_watts"]) == (4e-3, 0.3e-3, 3.2e-3, 0.4e-3)
    assert tuple(module.thresholds["receive_power_watts"]) == (3.2e-3, 0.1e-3, 2.5e-3, 0.2e-3)


def decoded(made):
    """Ask for the spans that the decoder wants, of a recording that went through a file."""
    memory = parse_memory(json.loads(json.dumps(made)))
    pages = ask(memory, [HEADER])
    family = optics.family_of(pages[HEADER])
    pages |= ask(memory, [family.identity])
    pages |= ask(memory, family.static_ranges(pages))
    pages |= ask(memory, family.monitor_ranges(pages))
    return optics.decode(pages)


def ask(memory, spans):
    return {span: memory.read(**span._asdict()) for span in spans}
