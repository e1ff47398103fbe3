"""Sharding: each target belongs to exactly one shard, and few move when a shard is added."""

from collections import Counter

import pytest

from exporter.config.errors import UserError
from exporter.config.shard import Shard, owner

TARGETS = [f"leaf-{number:04}" for number in range(2000)]


@pytest.mark.parametrize(
    ("text", "shard"),
    [("0/1", (0, 1)), ("2/5", (2, 5)), ("fabric-exporter-switches-4/5", (4, 5)), ("a-0-11/12", (11, 12))],
)
def test_valid_shards(text, shard):
    assert Shard.parse(text) == Shard(*shard)


@pytest.mark.parametrize("text", ["", "1", "5/5", "1/0", "-1/3", "a/3", "1/3/5", "1 /3", "٣/5", "pod-/3"])
def test_invalid_shards_are_rejected(text):
    with pytest.raises(UserError, match="is not a shard"):
        Shard.parse(text)


def test_environment_variable(monkeypatch):
    monkeypatch.delenv("FABRIC_SHARD", raising=False)
    assert Shard.from_environment() == Shard(0, 1)
    monkeypatch.setenv("FABRIC_SHARD", "sw-1/2")
    assert Shard.from_environment() == Shard(1, 2)
    monkeypatch.setenv("FABRIC_SHARD", "x")
    with pytest.raises(UserError, match="FABRIC_SHARD: 'x' is not a shard"):
        Shard.from_environment()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_targets_are_distributed_evenly(count):
    shards = [Shard(number, count) for number in range(count)]
    owners = [[shard.number for shard in shards if shard.owns(target)] for target in TARGETS]
    assert all(len(of) == 1 for of in owners)
    shares = Counter(of[0] for of in owners)
    assert len(shares) == count
    assert max(shares.values()) < 1.35 * len(TARGETS) / count


@pytest.mark.parametrize("count", [2, 5, 10])
def test_an_additional_shard_moves_only_its_own_targets(count):
    moved = [target for target in TARGETS if owner(target, count) != owner(target, count + 1)]
    assert all(owner(target, count + 1) == count for target in moved)
    assert 0.7 < len(moved) / (len(TARGETS) / (count + 1)) < 1.3


def test_every_process_computes_the_same_owner():
    """Values of blake2b, computed independently; the hash of Python differs between processes."""
    assert [owner(target, 4) for target in TARGETS[:8]] == OWNERS


OWNERS = [2, 2, 3, 3, 2, 1, 0, 3]
