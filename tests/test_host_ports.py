"""What the sources of this host's ports do alike: how rails are numbered, and when rows were read apart."""

from exporter.sources.host_ports import APART, Seat, number_rails, own_times


def test_rails_count_the_ports_of_each_kind_by_pci_address_then_port():
    seats = [
        Seat("slow", "0000:01:00.0", "eth9"),
        Seat("fast", "0000:c0:00.0", "mlx5_0", 1),
        Seat("fast", "0000:18:00.0", "mlx5_1", 2),
        Seat("fast", "0000:18:00.0", "mlx5_1", 1),
        Seat("fast", "", "mlx5_10"),
        Seat("fast", "", "mlx5_9"),
        Seat(None, "0000:02:00.0", "bond0"),
    ]
    assert number_rails(seats, {}) == ["0", "2", "1", "0", "4", "3", ""]


def test_the_configuration_wins_and_moves_no_other_rail():
    seats = [Seat("fast", "0000:18:00.0", "mlx5_0"), Seat("fast", "0000:40:00.0", "mlx5_1"), Seat(None, "", "bond0")]
    assert number_rails(seats, {"mlx5_0": "storage", "bond0": "7"}) == ["storage", "1", "7"]


def test_rows_have_times_of_their_own_only_where_they_were_read_apart():
    assert own_times(5.0, [5.0, 5.0 + APART / 2]) is None
    assert own_times(5.0, [5.0, 5.0 + 2 * APART]) == [5.0, 5.0 + 2 * APART]
