import errno
import os
import struct

import pytest

from exporter.linux.ethtool_ioctl import (
    DriverInfo,
    EthtoolIoctl,
    LinkSettings,
    Statistics,
)

GDRVINFO, GSTRINGS, GSTATS, GSSET_INFO, GLINKSETTINGS = 0x03, 0x1B, 0x1D, 0x37, 0x4C


class FakeKernel:
    """Executes commands as net/ethtool/ioctl.c does; an `old` kernel ignores the caller's counts."""

    def __init__(self, names=(), old=False):
        self.names = list(names)
        self.old = old
        self.before = {}  # command -> what happens to the driver just before it
        self.asked = []

    def __call__(self, device, buffer):
        (command,) = struct.unpack_from("=I", buffer)
        self.asked.append(command)
        self.before.pop(command, lambda: None)()
        {GSSET_INFO: self.sset_info, GSTRINGS: self.strings, GSTATS: self.stats}[command](buffer)

    def sset_info(self, buffer):
        assert struct.unpack_from("=IIQ", buffer) == (GSSET_INFO, 0, 1 << 1)
        struct.pack_into("=QI", buffer, 8, 1 << 1, len(self.names))

    def strings(self, buffer):
        _, string_set, requested = struct.unpack_from("=III", buffer)
        assert string_set == 1
        count = self.count(requested)
        struct.pack_into("=I", buffer, 8, count)
        for number, name in enumerate(self.names[:count]):
            struct.pack_into("32s", buffer, 12 + 32 * number, name)

    def stats(self, buffer):
        count = self.count(struct.unpack_from("=II", buffer)[1])
        struct.pack_into(f"=I{count}Q", buffer, 4, count, *range(1000, 1000 + count))

    def count(self, requested):
        return len(self.names) if self.old or requested in (0, len(self.names)) else 0


def test_names_and_values_have_the_same_order():
    kernel = FakeKernel([b"rx_bytes_phy", b"rx_prio3_pause"])
    found = EthtoolIoctl(kernel).statistics("eth0")
    assert found.names == ("rx_bytes_phy", "rx_prio3_pause")
    assert list(found.values) == [1000, 1001]


def test_values_have_64_bits():
    kernel = FakeKernel([b"rx_bytes"])
    kernel.stats = lambda buffer: struct.pack_into("=IQ", buffer, 4, 1, 2**64 - 1)
    assert list(EthtoolIoctl(kernel).statistics("eth0").values) == [2**64 - 1]


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"rx_fcs_errors          ", "rx_fcs_errors"),
        (b"-------Loopback----------- ", "-------Loopback-----------"),
        (b"     err", "err"),
        (b"[0]: rx_bytes", "[0]: rx_bytes"),
        (b"a" * 32, "a" * 32),
        (b"rx\0left over", "rx"),
        (b"caf\xe9", "caf\N{REPLACEMENT CHARACTER}"),
        (b"", ""),
    ],
)
def test_names_are_stripped_and_decoded(raw, name):
    assert EthtoolIoctl(FakeKernel([raw, b"next"])).statistics("eth0").names == (name, "next")


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("command", [GSTRINGS, GSTATS])
@pytest.mark.parametrize("after", [[b"a", b"b", b"c", *[b"more%d" % i for i in range(200)]], [b"b"]])
def test_count_that_changes_between_calls_is_read_again(old, command, after):
    kernel = FakeKernel([b"a", b"b"], old)
    kernel.before[command] = lambda: setattr(kernel, "names", after)
    found = EthtoolIoctl(kernel).statistics("eth0")
    assert found.names == tuple(name.decode() for name in after)
    assert list(found.values) == list(range(1000, 1000 + len(after)))


def test_attempts_are_limited_when_the_count_keeps_changing():
    kernel = FakeKernel([b"a"])
    kernel.stats = lambda buffer: struct.pack_into("=I", buffer, 4, 0)
    with pytest.raises(OSError, match="kept changing") as caught:
        EthtoolIoctl(kernel).statistics("eth0")
    assert (caught.value.errno, caught.value.filename) == (errno.EAGAIN, "eth0")
    assert kernel.asked.count(GSTATS) == 4


def test_changed_names_of_the_same_number_are_detected():
    kernel = FakeKernel([b"rx_bytes", b"rx_prio3_pause"])
    ethtool = EthtoolIoctl(kernel)
    ethtool.statistics("eth0")
    kernel.names[1] = b"rx_prio4_pause"
    assert ethtool.statistics("eth0").names == ("rx_bytes", "rx_prio4_pause")


def test_names_are_shared_between_reads_and_devices_until_forgotten():
    kernel = FakeKernel([b"rx_bytes", b"tx_bytes"])
    ethtool = EthtoolIoctl(kernel)
    first = ethtool.statistics("eth0").names
    assert ethtool.statistics("eth0").names is first
    assert ethtool.statistics("eth1").names is first
    ethtool.forget("eth0")
    ethtool.forget("eth1")
    ethtool.forget("never seen")
    assert ethtool.statistics("eth0").names is not first


def test_no_statistics_and_an_empty_string_set():
    kernel = FakeKernel()
    assert EthtoolIoctl(kernel).statistics("eth0") == Statistics((), ())
    assert kernel.asked == [GSSET_INFO], "asking for no names makes the kernel warn"
    kernel.sset_info = lambda buffer: struct.pack_into("=QI", buffer, 8, 0, 0)
    with pytest.raises(OSError, match="no statistics") as caught:
        EthtoolIoctl(kernel).statistics("bond0")
    assert caught.value.errno == errno.EOPNOTSUPP


def test_implausible_count_allocates_no_memory():
    kernel = FakeKernel()
    kernel.sset_info = lambda buffer: struct.pack_into("=QI", buffer, 8, 2, 2**32 - 1)
    with pytest.raises(OSError, match="4294967295 statistics") as caught:
        EthtoolIoctl(kernel).statistics("eth0")
    assert caught.value.errno == errno.EOVERFLOW


def test_driver_info():
    def kernel(device, buffer):
        assert device == "eth0"
        assert len(buffer) == 196
        assert struct.unpack_from("=I", buffer) == (GDRVINFO,)
        parts = (b"mlx5_core", b"6.8.0", b"28.39.1002 (MT_0000000838)", b"0000:17:00.0")
        struct.pack_into("=32s32s32s32s", buffer, 4, *parts)

    assert EthtoolIoctl(kernel).driver("eth0") == DriverInfo(
        "mlx5_core", "6.8.0", "28.39.1002 (MT_0000000838)", "0000:17:00.0"
    )


def settings_of(speed=0, duplex=1, port=3, autoneg=1, words=4):
    """Answer as the kernel does: first with the size of its masks, negative, then in full."""

    def kernel(_device, buffer):
        if struct.unpack_from("b", buffer, 15) == (0,):
            assert len(buffer) == 48
            struct.pack_into("=b", buffer, 15, -words)
            return
        assert struct.unpack_from("b", buffer, 15) == (words,)
        assert len(buffer) == 48 + 12 * words, "the kernel writes three masks behind the struct"
        struct.pack_into("=IBBBB", buffer, 4, speed, duplex, port, 0, autoneg)

    return EthtoolIoctl(kernel).settings("eth0")


def test_link_settings():
    assert settings_of(speed=400_000) == LinkSettings(400_000_000_000, "full", True, "fibre")
    assert settings_of(speed=10, duplex=0, port=5, autoneg=0) == LinkSettings(10_000_000, "half", False, "da")


@pytest.mark.parametrize("speed", [0, 65535, 4294967295, 10_000_000])
def test_unknown_speed_is_none(speed):
    assert settings_of(speed=speed, duplex=255, port=77) == LinkSettings(None, None, True, None)


def test_missing_size_of_link_mode_masks_is_an_error():
    with pytest.raises(OSError, match="link mode masks") as caught:
        EthtoolIoctl(lambda _device, _buffer: None).settings("eth0")
    assert caught.value.errno == errno.EPROTO


def test_driver_errors_pass_through():
    def kernel(device, _buffer):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), device)

    for request in (EthtoolIoctl(kernel).driver, EthtoolIoctl(kernel).statistics, EthtoolIoctl(kernel).settings):
        with pytest.raises(OSError) as caught:
            request("eth0")
        assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, "eth0")


@pytest.mark.parametrize("name", ["", "a-name-of-sixteen", "a\0b", "no-such-device0"])
def test_unknown_and_invalid_device_names(name):
    with EthtoolIoctl() as ethtool, pytest.raises(OSError) as caught:
        ethtool.driver(name)
    assert caught.value.errno == errno.ENODEV
