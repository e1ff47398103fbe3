"""What the configuration knows of the links of hosts reaches the verdicts on jobs."""

from pathlib import Path

from exporter.config.schema import parse
from exporter.config.shard import Shard
from exporter.core.definition import Context
from exporter.core.source import Host
from exporter.daemon.prepared import prepare
from exporter.daemon.sources import SOURCES

EXPECT = b"""
expect:
  rdma_ports: 8
  rdma_speed: 400Gb/s
  bandwidth_share: 0.7
  classes:
    - {hosts: ["old-*"], rdma_ports: 4, rdma_speed: 200Gb/s}
"""


def links_of(text):
    return prepare(
        parse(text, "c.yml", SOURCES), Context(Host("collector", Path("/nowhere"), Path("/nowhere"))), Shard()
    ).known.links


def test_the_links_of_hosts_are_those_that_are_expected():
    links = links_of(EXPECT)
    assert links.of_host("gpu-1") == (50e9, 8)
    assert links.of_host("old-1") == (25e9, 4)
    assert links.share == 0.7


def test_links_without_an_expected_speed_are_unknown():
    assert links_of(b"expect: {rdma_ports: 8}").of_host("gpu-1") is None
    assert links_of(b"expect: {rdma_speed: 400Gb/s}").of_host("gpu-1") == (50e9, None)
    assert links_of(b"").share == 0.8
