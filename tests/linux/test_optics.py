"""Optical modules: the ranges that are read, their decoding, and the plausibility of values."""

import struct
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.linux import optics
from exporter.linux.optics.module import (
    HEADER,
    OpticalLane,
    OpticalModule,
    ThresholdLevels,
)
from exporter.linux.optics.plausibility import drop_implausible
from tests.helpers.fake_module_memory import (
    BIAS,
    FAMILIES,
    TEMPERATURE,
    VOLTAGE,
    FakeModuleMemory,
    cmis,
    sff8472,
    sff8636,
)

MAKERS = {"cmis": cmis, "sff8636": sff8636, "sff8472": sff8472}


def levels_of(module):
    return {name: tuple(levels) for name, levels in module.thresholds.items()}


def numbers_of(lanes):
    return [lane.number for lane in lanes]


# Values.


def test_all_values_of_a_qsfp28():
    module = sff8636().module()
    assert module == OpticalModule(
        "QSFP28",
        "EXAMPLE OPTICS",
        "EX-100G-CWDM4",
        "EX0000000001",
        "A0",
        33.5,
        3.25,
        (
            OpticalLane(1, 1e-3, 1.1e-3, 42e-3),
            OpticalLane(2, 0.9e-3, 1.2e-3, 41e-3),
            OpticalLane(3, 0.8e-3, 1.3e-3, 40e-3),
            OpticalLane(4, 0.7e-3, 1.4e-3, 39e-3),
        ),
        {
            "temperature_celsius": ThresholdLevels(75, -5, 70, 0),
            "voltage_volts": ThresholdLevels(3.63, 2.97, 3.465, 3.135),
            "receive_power_watts": ThresholdLevels(2e-3, 25e-6, 1.7e-3, 63e-6),
            "bias_amperes": ThresholdLevels(55e-3, 25e-3, 50e-3, 30e-3),
            "transmit_power_watts": ThresholdLevels(3.5e-3, 158e-6, 1.8e-3, 400e-6),
        },
    )


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_all_values_of_a_cmis_module_and_its_bias_multiplier(factor):
    module = cmis(factor=factor).module()
    assert (module.kind, module.vendor, module.part) == ("QSFP-DD", "EXAMPLE OPTICS", "EX-400G-DR4")
    assert (module.serial, module.revision) == ("EX0000000002", "B1")
    assert (module.temperature_celsius, module.voltage_volts) == (-1.5, 3.3)
    assert [lane.transmit_power_watts for lane in module.lanes] == pytest.approx([(10 + n) * 1e-4 for n in range(8)])
    assert [lane.receive_power_watts for lane in module.lanes] == pytest.approx([(20 + n) * 1e-4 for n in range(8)])
    assert [lane.bias_amperes for lane in module.lanes] == pytest.approx([(50 + n) * 1e-3 for n in range(8)], abs=4e-6)
    assert levels_of(module) == {
        "temperature_celsius": (80, -10, 75, -5),
        "voltage_volts": (3.6, 3.0, 3.5, 3.1),
        "transmit_power_watts": (4e-3, 0.2e-3, 3e-3, 0.4e-3),
        "bias_amperes": (0.1, 0.02, 0.09, 0.03),
        "receive_power_watts": (5e-3, 0.1e-3, 4.5e-3, 0.3e-3),
    }
    assert module.implausible == ()


def test_all_values_of_an_sfp():
    module = sff8472().module()
    assert module == OpticalModule(
        "SFP",
        "EXAMPLE",
        "EX-10G-SR",
        "EX0000000003",
        "A",
        40.0,
        3.3,
        (OpticalLane(1, 0.5e-3, 0.6e-3, 6e-3),),
        {
            "temperature_celsius": ThresholdLevels(80, -10, 70, 0),
            "voltage_volts": ThresholdLevels(3.6, 3.0, 3.5, 3.1),
            "bias_amperes": ThresholdLevels(15e-3, 2e-3, 12e-3, 3e-3),
            "transmit_power_watts": ThresholdLevels(1.5e-3, 0.1e-3, 1e-3, 0.2e-3),
            "receive_power_watts": ThresholdLevels(1.6e-3, 0.04e-3, 1.1e-3, 0.06e-3),
        },
    )


@pytest.mark.parametrize(
    ("identifier", "kind", "lanes"),
    [
        (0x0C, "QSFP", 4),
        (0x0D, "QSFP+", 4),
        (0x11, "QSFP28", 4),
        (0x18, "QSFP-DD", 8),
        (0x19, "OSFP", 8),
        (0x1B, "DSFP", 2),
        (0x1E, "QSFP CMIS", 4),
        (0x1F, "SFP-DD CMIS", 2),
        (0x20, "SFP CMIS", 1),
    ],
)
def test_identifier_determines_kind_and_maximum_lanes(identifier, kind, lanes):
    module = (cmis if identifier >= 0x18 else sff8636)(identifier).module()
    assert (module.kind, numbers_of(module.lanes)) == (kind, list(range(1, lanes + 1)))


READ_RANGES = {
    "cmis": [
        *((0, 0, 3), (0, 166, 45)),
        *((0, 129, 37), (1, 159, 2), (2, 128, 72)),
        *((0, 3, 1), (0, 14, 4), (0x11, 154, 48)),
    ],
    "sff8636": [(0, 0, 3), (0, 196, 25), (0, 147, 39), (3, 128, 72), (0, 22, 36)],
    "sff8472": [(0, 0, 3), (0, 68, 25), (0, 20, 40), (0, 0, 40), (0, 96, 10)],
}
"""Page, first byte and length of all ranges that are read."""


@pytest.mark.parametrize("maker", MAKERS)
def test_only_needed_bytes_are_read(maker):
    memory = MAKERS[maker]()
    memory.module()
    assert [request[1:] for request in memory.asked] == READ_RANGES[maker]
    diagnostics = [address for address, *_ in memory.asked[3:]]
    assert diagnostics == ([0x51] * 2 if maker == "sff8472" else [0x50] * len(diagnostics))


@pytest.mark.parametrize(
    ("byte", "state"),
    [
        (0x03, "low_power"),
        (0x05, "powering_up"),
        (0x07, "ready"),
        (0x06, "ready"),  # bit 0, the interrupt's, is none of it, and neither are those above bit 3
        (0xF7, "ready"),
        (0x09, "powering_down"),
        (0x0B, "fault"),
        (0x01, None),
        (0x0D, None),
        (0x0F, None),
    ],
)
def test_cmis_module_states(byte, state):
    assert cmis().put(0, 3, bytes([byte])).module().state == state


def test_unreadable_state_is_none_and_other_families_have_none():
    memory = cmis()
    read = memory.read

    def refuse(**memory_range):
        if memory_range["offset"] == 3:
            raise OSError(5, "Input/output error")
        return read(**memory_range)

    memory.read = refuse
    assert (memory.module().state, memory.module().temperature_celsius) == (None, -1.5)
    assert (sff8636().module().state, sff8472().module().state) == (None, None)


def test_reserved_or_unknown_bias_multiplier_gives_no_bias():
    module = cmis().put(1, 160, b"\x1f").module()
    assert [lane.bias_amperes for lane in module.lanes] == [None] * 8
    assert len(module.thresholds) == 4
    memory = cmis()
    del memory.parts[0x50, 1]
    assert "bias_amperes" not in memory.module().thresholds


def test_texts_may_be_unset_or_contain_any_byte():
    memory = sff8636().put(0, 148, b"A\x00B\xe9C".ljust(16, b"\0")).put(0, 168, b"\xff" * 16).put(0, 196, b"\0" * 16)
    module = memory.module()
    assert (module.vendor, module.part, module.serial) == ("A\x00B\udce9C", "", "")


def test_empty_cage_and_unsupported_module():
    assert FakeModuleMemory(0x00).module() is None
    assert FakeModuleMemory(0xFF).module() is None
    assert FakeModuleMemory(0x1C).module() == OpticalModule("0x1c")
    assert optics.decode({}) is None
    assert optics.decode({HEADER: b""}) is None
    assert optics.family_of(b"") is None


# What is not monitored is absent, and not read.


def test_only_the_identity_of_a_flat_memory_cable_is_read():
    memory = cmis().put(0, 2, b"\x80")
    module = memory.module()
    assert (module.vendor, module.serial) == ("EXAMPLE OPTICS", "EX0000000002")
    assert (module.temperature_celsius, module.voltage_volts, module.lanes, module.thresholds) == (None, None, (), {})
    assert {page for _, page, _, _ in memory.asked} == {0}
    assert not any(offset + length > 3 and offset < 18 for _, _, offset, length in memory.asked)
    assert module.state is None


@pytest.mark.parametrize(
    ("module_bits", "lane_bits", "measured"),
    [
        (0, 0, set()),
        (1, 0, {"temperature_celsius"}),
        (2, 0, {"voltage_volts"}),
        (0, 1, {"bias_amperes"}),
        (0, 2, {"transmit_power_watts"}),
        (0, 4, {"receive_power_watts"}),
    ],
)
def test_cmis_monitors_that_are_not_advertised_are_absent(module_bits, lane_bits, measured):
    memory = cmis().put(1, 159, bytes([module_bits, lane_bits]))
    module = memory.module()
    found = {name for name in ("temperature_celsius", "voltage_volts") if getattr(module, name) is not None}
    for lane in module.lanes:
        found |= {one.name for one in fields(lane) if one.name != "number" and getattr(lane, one.name) is not None}
    assert found == measured
    assert (0x11 in {page for _, page, _, _ in memory.asked}) == bool(lane_bits)


def test_flat_memory_qsfp_has_no_thresholds():
    memory = sff8636().put(0, 2, b"\x04")
    module = memory.module()
    assert module.thresholds == {}
    assert (module.temperature_celsius, len(module.lanes)) == (33.5, 4)
    assert {page for _, page, _, _ in memory.asked} == {0}


@pytest.mark.parametrize("technology", [0xA0, 0xB0])
def test_passive_copper_has_no_monitors(technology):
    module = sff8636().put(0, 147, bytes([technology])).put(0, 2, b"\x04").module()
    assert (module.part, module.temperature_celsius, module.voltage_volts) == ("EX-100G-CWDM4", None, None)
    assert module.lanes == ()


def test_qsfp_with_data_not_ready_has_no_values():
    module = sff8636().put(0, 2, b"\x01").module()
    assert (module.temperature_celsius, module.lanes) == (None, ())
    assert module.thresholds["temperature_celsius"] == ThresholdLevels(75, -5, 70, 0)


def test_qsfp_with_interrupt_pending_has_values():
    assert sff8636().put(0, 2, b"\x02").module().temperature_celsius == 33.5


def test_qsfp_without_transmit_power_monitor():
    module = sff8636().put(0, 220, b"\x08").module()
    assert [lane.transmit_power_watts for lane in module.lanes] == [None] * 4
    assert [lane.bias_amperes for lane in module.lanes] == [42e-3, 41e-3, 40e-3, 39e-3]


@pytest.mark.parametrize("monitoring", [0x00, 0x20, 0x64])
def test_diagnostics_are_not_read_without_ddm_or_with_address_change(monitoring):
    memory = sff8472(monitoring)
    module = memory.module()
    assert (module.part, module.temperature_celsius, module.lanes, module.thresholds) == ("EX-10G-SR", None, (), {})
    assert {address for address, *_ in memory.asked} == {0x50}


def test_all_zero_monitors_are_absent():
    memory = sff8636().put(0, 22, bytes(36)).put(3, 128, bytes(72))
    module = memory.module()
    assert (module.temperature_celsius, module.voltage_volts) == (None, None)
    assert (module.lanes, module.thresholds, module.implausible) == ((), {}, ())


def test_zero_volts_is_not_measured():
    module = sff8636().word(0, 26, 0).module()
    assert (module.temperature_celsius, module.voltage_volts, module.implausible) == (33.5, None, ())
    assert len(module.lanes) == 4
    module = sff8636().word(0, 22, 0).word(0, 26, 0).module()
    assert (module.temperature_celsius, module.voltage_volts, len(module.lanes)) == (0.0, None, 4)


def test_zeros_are_not_calibrated():
    """An SFP that its host calibrates: the constant terms made 0.5 uW of light and half a degree of zeros."""
    module = sff8472(0x50).put(0, 56, CALIBRATION, 0x51).put(0, 96, bytes(10), 0x51).module()
    assert (module.part, module.temperature_celsius, module.voltage_volts) == ("EX-10G-SR", None, None)
    assert (module.lanes, module.implausible) == ((), ())


def test_zeros_without_a_monitored_voltage_are_absent():
    memory = cmis().put(1, 159, bytes([0x01])).put(0, 14, bytes(2)).put(0x11, 154, bytes(48))
    module = memory.module()
    assert (module.temperature_celsius, module.voltage_volts, module.lanes) == (None, None, ())
    dark = memory.word(0, 14, 30 * 256).module()
    assert (dark.temperature_celsius, len(dark.lanes)) == (30.0, 8)
    assert {lane.receive_power_watts for lane in dark.lanes} == {0.0}


def test_unset_thresholds_are_absent():
    module = sff8636().put(3, 184, bytes(8)).module()
    assert "bias_amperes" not in module.thresholds
    assert (len(module.thresholds), module.implausible) == (4, ())


def test_missing_page_affects_only_its_values():
    memory = cmis()
    del memory.parts[0x50, 2]
    module = memory.module()
    assert module.thresholds == {}
    assert len(module.lanes) == 8
    memory = cmis()
    del memory.parts[0x50, 0x11]
    module = memory.module()
    assert module.lanes == ()
    assert module.temperature_celsius == -1.5


# Calibration that an SFP leaves to its host.

CALIBRATION = struct.pack(">5f8h", 0.0, 0.0, 0.001, 2.0, 5.0, 0x0200, 10, 0x0080, -20, 0x0100, 128, 0x0180, -100)
"""Receive power 0.001 x2 + 2 x + 5; then slope and offset of bias, transmit power, temperature and voltage."""


def test_external_calibration_is_applied_to_values_and_thresholds():
    memory = sff8472(0x50).put(0, 56, CALIBRATION, 0x51)
    memory.words(0, 96, [40 * 256, 22000, 1000, 2000, 1000], 0x51)
    memory.words(0, 32, [2000, 100, 1000, 0], 0x51)
    module = memory.module()
    assert module.temperature_celsius == 40.5
    assert module.voltage_volts == pytest.approx((22000 * 1.5 - 100) / 1e4)
    lane = module.lanes[0]
    assert lane.bias_amperes == pytest.approx((1000 * 2 + 10) * 2e-6)
    assert lane.transmit_power_watts == pytest.approx((2000 * 0.5 - 20) * 1e-7)
    assert lane.receive_power_watts == pytest.approx((1000 + 2000 + 5) * 1e-7, rel=1e-6)
    assert module.thresholds["receive_power_watts"] == pytest.approx((8005e-7, 215e-7, 3005e-7, 5e-7), rel=1e-6)
    assert module.thresholds["temperature_celsius"] == (80.5, -9.5, 70.5, 0.5)


def test_negative_calibrated_power_is_zero():
    terms = struct.pack(">5f", 0.0, 0.0, 0.0, 1.0, -50.0)
    memory = sff8472(0x50).put(0, 56, terms + CALIBRATION[20:], 0x51).word(0, 104, 3, 0x51).word(0, 98, 22000, 0x51)
    module = memory.module()
    assert module.implausible == ()
    assert module.lanes[0].receive_power_watts == 0.0


@pytest.mark.parametrize("term", [float("nan"), float("inf")])
def test_calibration_with_nan_or_infinity_gives_no_value(term):
    terms = struct.pack(">5f", 0.0, 0.0, 0.0, term, 0.0)
    memory = sff8472(0x50).put(0, 56, terms + CALIBRATION[20:], 0x51).word(0, 98, 22000, 0x51)
    module = memory.module()
    assert module.lanes[0].receive_power_watts is None
    assert module.lanes[0].bias_amperes is not None
    assert "receive_power_watts" not in module.thresholds


def test_externally_calibrated_values_without_calibration_are_absent():
    memory = sff8472(0x50)
    pages = {HEADER: memory.read(page=0, bank=0, offset=0, length=3)}
    family = optics.family_of(pages[HEADER])
    for span in (family.identity, *family.static_ranges({**pages, family.identity: bytes([0x00] * 24 + [0x50])})):
        page, offset, length, bank, address = span
        data = memory.read(page=page, bank=bank, offset=offset, length=length, address=address)
        pages[span] = data[:10] if (address, offset) == (0x51, 56) else data
    assert family.monitor_ranges(pages) == ()
    module = optics.decode(pages)
    assert (module.part, module.temperature_celsius, module.lanes, module.thresholds) == ("EX-10G-SR", None, (), {})


# Lanes in use.


def test_unsupported_lanes_are_skipped():
    module = cmis().put(0, 210, b"\xf0").module()
    assert numbers_of(module.lanes) == [1, 2, 3, 4]


@pytest.mark.parametrize("darkness", [0, 1])
def test_dark_lanes_beside_lit_ones_are_unused(darkness):
    memory = cmis(lanes=4).words(0x11, 162, [darkness] * 4).words(0x11, 194, [darkness] * 4)
    assert numbers_of(memory.module().lanes) == [1, 2, 3, 4]


def test_lane_with_bias_and_no_light_is_in_use():
    memory = cmis(lanes=4).word(0x11, 170 + 2 * 6, 50e-3 * BIAS)
    lanes = memory.module().lanes
    assert numbers_of(lanes) == [1, 2, 3, 4, 7]
    assert lanes[-1] == OpticalLane(7, 0.0, 0.0, 50e-3)


def test_lane_with_light_and_no_bias_is_in_use():
    memory = sff8636().word(0, 42, 0).word(0, 50, 1)
    assert memory.module().lanes[0] == OpticalLane(1, 1e-3, 1e-7, 0.0)


def test_lane_without_bias_monitor_is_in_use():
    memory = cmis(lanes=4).put(1, 159, b"\x03\x06")
    assert len(memory.module().lanes) == 8


def test_all_lanes_are_in_use_when_all_lasers_are_off():
    module = sff8636().put(0, 34, bytes(24)).module()
    assert module.lanes == tuple(OpticalLane(number, 0.0, 0.0, 0.0) for number in (1, 2, 3, 4))


# What is not believed.


@pytest.mark.parametrize(
    ("offset", "raw", "name"),
    [
        (22, 126 * TEMPERATURE, "temperature_celsius"),
        (22, -41 * TEMPERATURE, "temperature_celsius"),
        (26, 1.9 * VOLTAGE, "voltage_volts"),
        (26, 4.6 * VOLTAGE, "voltage_volts"),
        (26, 1, "voltage_volts"),
    ],
)
def test_implausible_temperature_or_voltage_drops_all_values(offset, raw, name):
    module = sff8636().word(0, offset, raw).module()
    assert (module.temperature_celsius, module.voltage_volts, module.lanes, module.thresholds) == (None, None, (), {})
    assert module.serial == "EX0000000001"
    assert [doubt.partition(",")[0] for doubt in module.implausible] == [name]


@pytest.mark.parametrize(
    ("offset", "raw"), [(22, 125 * TEMPERATURE), (22, -40 * TEMPERATURE), (26, 2 * VOLTAGE), (26, 4.5 * VOLTAGE)]
)
def test_values_at_the_plausible_limits_are_accepted(offset, raw):
    module = sff8636().word(0, offset, raw).module()
    assert module.implausible == ()
    assert len(module.lanes) == 4


def test_zero_degrees_is_a_temperature():
    module = sff8636().word(0, 22, 0).module()
    assert (module.temperature_celsius, module.voltage_volts, module.implausible) == (0.0, 3.25, ())


@pytest.mark.parametrize(
    ("name", "step", "highest"),
    [("bias_amperes", 2e-6, 0.6), ("transmit_power_watts", 1e-7, 0.02), ("receive_power_watts", 1e-7, 0.02)],
)
def test_implausible_power_or_bias_drops_only_that_value(name, step, highest):
    values = {"bias_amperes": 100, "transmit_power_watts": 102, "receive_power_watts": 104}
    slopes = {"bias_amperes": 76, "transmit_power_watts": 80}

    def measured(result):
        """Return the module, with a calibration that converts the largest reading to `result`."""
        memory = sff8472(0x50).put(0, 56, CALIBRATION, 0x51).word(0, 98, 22000, 0x51).words(0, 16, [0] * 12, 0x51)
        memory.word(0, values[name], 0xFFFF, 0x51)
        factor = result / step / 0xFFFF
        if name in slopes:
            memory.words(0, slopes[name], [factor * 256, 0], 0x51)
        else:
            memory.put(0, 56, struct.pack(">5f", 0.0, 0.0, 0.0, factor, 0.0), 0x51)
        return memory.module()

    module = measured(highest * 0.98)
    assert getattr(module.lanes[0], name) == pytest.approx(highest * 0.98, rel=0.01)
    assert module.implausible == ()
    module = measured(highest * 1.02)
    assert getattr(module.lanes[0], name) is None
    assert module.temperature_celsius == 40.5
    assert [doubt.split(",")[0] for doubt in module.implausible] == [f"{name} of lane 1"]


def test_thresholds_in_the_wrong_order_are_dropped():
    module = sff8636().words(3, 128, [-5 * 256, 75 * 256, 70 * 256, 0]).module()
    assert "temperature_celsius" not in module.thresholds
    assert len(module.thresholds) == 4
    assert module.temperature_celsius == 33.5
    assert len(module.implausible) == 1


def test_implausibly_high_threshold_is_dropped():
    sane = ThresholdLevels(0.1, 0, 0.09, 0.001)
    module = drop_implausible(
        OpticalModule("SFP", thresholds={"receive_power_watts": ThresholdLevels(2e23, 0, 1, 0), "bias_amperes": sane})
    )
    assert (dict(module.thresholds), len(module.implausible)) == ({"bias_amperes": sane}, 1)


# Arbitrary memory.


@pytest.mark.parametrize("maker", MAKERS)
def test_latched_flags_are_never_read(maker):
    memory = MAKERS[maker]()
    memory.module()
    assert len(memory.asked) >= 5  # Memory itself fails on each that touches a flag


@given(st.sampled_from(sorted(FAMILIES)), st.binary(min_size=256, max_size=256), st.data())
def test_arbitrary_memory_raises_no_error(identifier, noise, data):
    memory = FakeModuleMemory(identifier)
    for address, page in ((0x50, None), (0x50, 0), (0x50, 1), (0x50, 2), (0x50, 3), (0x50, 0x11), (0x51, None)):
        memory.parts[address, page] = bytearray(data.draw(st.sampled_from([noise, noise[::-1], bytes(256)])))
    memory.parts[0x50, None][0] = identifier
    module = memory.module()
    assert len(module.lanes) <= 8
    for lane in module.lanes:
        for value in (lane.receive_power_watts, lane.transmit_power_watts):
            assert value is None or 0 <= value <= 0.02
        assert lane.bias_amperes is None or 0 <= lane.bias_amperes <= 0.6
    assert module.temperature_celsius is None or -40 <= module.temperature_celsius <= 125
    assert module.voltage_volts is None or 2 <= module.voltage_volts <= 4.5
    for levels in module.thresholds.values():
        assert levels.low_alarm < levels.high_alarm


@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_missing_and_short_ranges_raise_no_error(identifier, data):
    pages = {HEADER: bytes([identifier]) + data.draw(st.binary(max_size=2))}
    family = optics.family_of(pages[HEADER])

    def answer(spans):
        for span in spans:
            if data.draw(st.booleans()):
                pages[span] = data.draw(st.binary(max_size=span.length))

    answer([family.identity])
    answer(family.static_ranges(pages))
    answer(family.monitor_ranges(pages))
    assert optics.decode(pages).kind
