"""Parsing of durations and link speeds."""

import pytest

from exporter.config.units import BitRate, Duration, at_least


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5), ("1m30s", 90), ("1.5h", 5400), ("1d", 86400), ("1h1ms", 3600.001), ("15m", 900)],
)
def test_durations(text, seconds):
    assert Duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["5", "", "s", "5 s", "-5s", "5s ", "1m30", "5sec", "1e3s", "NaN", "5S"])
def test_invalid_durations(text):
    with pytest.raises(ValueError, match=r"expected a duration with its unit, such as 500ms, 5s or 1m30s"):
        Duration.parse(text)


@pytest.mark.parametrize(("text", "written"), [("2s", "3s"), ("2999ms", "3s"), ("3s", "3s"), ("1m", "1m")])
def test_a_duration_is_as_written_or_the_least(text, written):
    assert at_least(text, 3.0) == written


@pytest.mark.parametrize("text", ["0s", "0h0.0ms", "9" * 400 + "s"])
def test_durations_of_zero_and_infinity(text):
    with pytest.raises(ValueError, match="expected a duration above zero and finite"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [
        ("400Gb/s", 50_000_000_000),
        ("400 Gb/s", 50_000_000_000),
        ("100G", 12_500_000_000),
        ("25Gbit/s", 3_125_000_000),
        ("2.5Gbps", 312_500_000),
        ("1.6Tb/s", 200_000_000_000),
        ("10M", 1_250_000),
        ("8kb/s", 1000),
    ],
)
def test_link_speeds(text, bytes_per_second):
    assert BitRate.parse(text) == bytes_per_second


@pytest.mark.parametrize(
    "text",
    ["400", "400b/s", "50GB/s", "400GBps", "50GB", "fast", "", "0G", "-1G", "1e9", "9" * 400 + "G", "9" * 305 + "G"],
)
def test_invalid_link_speeds(text):
    """A number without unit and a capital B, for bytes, would be wrong by a factor of 8 or more if guessed."""
    with pytest.raises(ValueError, match=r"expected a link speed in bits with its unit, such as 400Gb/s or 100G"):
        BitRate.parse(text)
