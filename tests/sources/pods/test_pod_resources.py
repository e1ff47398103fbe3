"""Replies of kubelet's pod-resources API: encoded by the library of Protocol Buffers, and malformed ones."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.pods import pod_resources
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.pod_resources import Grant, grants_by_device, parse_list, shares
from exporter.sources.pods.protobuf_fields import FieldReader
from tests.helpers.kubelet import pod, reply

SRIOV = "openshift.io/rail0"
WORKER = PodOwner("training", "llama-worker-0", "", "trainer")


def test_devices_belong_to_their_container():
    data = reply(
        pod("training", "llama-worker-0", trainer={SRIOV: ["0000:c0:01.3", "0000:c0:02.1"]}, sidecar={}),
        pod("kube-system", "coredns-1", dns={}),
        pod("training", "llama-worker-1", trainer={"nvidia.com/gpu": ["GPU-1"], SRIOV: ["mlx5_core.sf.4"]}),
    )
    other = PodOwner("training", "llama-worker-1", "", "trainer")
    assert parse_list(data) == (
        Grant(WORKER, SRIOV, "0000:c0:01.3"),
        Grant(WORKER, SRIOV, "0000:c0:02.1"),
        Grant(other, "nvidia.com/gpu", "GPU-1"),
        Grant(other, SRIOV, "mlx5_core.sf.4"),
    )


def test_an_empty_reply_has_no_device():
    assert parse_list(b"") == ()
    assert parse_list(reply(pod("n", "p", c={}))) == ()


def test_a_dynamic_resource_has_the_device_of_its_claim():
    claimed = pod("training", "llama-worker-0", trainer={})
    claimed["containers"][0]["dynamic_resources"] = [
        {"claim_name": "nic", "claim_namespace": "training", "claim_resources": [
            {"driver_name": "dra.net", "pool_name": "node-1", "device_name": "gpu0rdma0"}]}
    ]  # fmt: skip
    assert parse_list(reply(claimed)) == (Grant(WORKER, "dra.net", "gpu0rdma0"),)


def test_a_share_of_a_pool_is_no_device():
    """k8s-rdma-shared-dev-plugin numbers its shares, and passes all devices of the pool to each container."""
    pool = "rdma/hca_shared_devices_a"
    grants = parse_list(
        reply(
            pod("training", "a-0", trainer={pool: ["0"]}),
            pod("training", "b-0", trainer={pool: ["61", "62"], SRIOV: ["0000:c0:01.3"]}),
        )
    )
    assert list(grants_by_device(grants)) == ["0000:c0:01.3"]
    assert shares(grants) == {
        (pool, PodOwner("training", "a-0", "", "trainer")): 1,
        (pool, PodOwner("training", "b-0", "", "trainer")): 2,
    }


def test_every_prefix_of_a_reply_is_parsed_or_is_an_error():
    data = reply(pod("training", "llama-worker-0", trainer={SRIOV: ["0000:c0:01.3"]}))
    outcomes = set()
    for length in range(len(data) + 1):
        try:
            outcomes.add(len(parse_list(data[:length])))
        except ValueError:
            outcomes.add("error")
    assert outcomes == {0, 1, "error"}  # 0 of the empty prefix alone
    assert len(parse_list(data)) == 1


@given(st.binary(max_size=200))
def test_random_bytes_are_parsed_or_are_an_error(data):
    with contextlib.suppress(ValueError):
        assert isinstance(parse_list(data), tuple)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x08\x05", "a number where a message"),
        (b"\x0b", "wire type 3"),
        (b"\x02\x00", "field number 0"),
        (b"\x0a\x7f", "ends after the message"),
        (b"\x0a" + b"\xff" * 11, "no end"),
        (b"\x0a\x02\x0a\xff", "no end"),
    ],
)
def test_a_malformed_message_is_an_error_that_names_the_place(data, text):
    with pytest.raises(ValueError, match=text):
        parse_list(data)


def test_a_text_that_is_not_utf_8_and_a_name_that_kubernetes_does_not_allow_are_errors():
    data = reply(pod("training", "llama-worker-0", trainer={SRIOV: ["0000:c0:01.3"]}))
    for wrong in (b"llama-\xffworker", b'a"} 1\nx{y=" z'):
        with pytest.raises(ValueError):
            parse_list(data.replace(b"llama-worker-0", wrong.ljust(14, b"a")))


def test_an_id_that_fits_no_label_is_left_out():
    data = reply(pod("training", "llama-worker-0", trainer={SRIOV: ["x\ny", "d" * 129, "0000:c0:01.3"]}))
    assert [one.device for one in parse_list(data)] == ["0000:c0:01.3"]


def test_a_reply_of_too_many_devices_or_fields_is_an_error_soon(monkeypatch):
    many = reply(pod("n", "p", c={SRIOV: [f"0000:00:{one:02x}.0" for one in range(200)]}))
    monkeypatch.setattr(pod_resources, "MAX_GRANTS", 100)
    with pytest.raises(ValueError, match="more than 100 devices"):
        parse_list(many)
    began = time.process_time()
    with pytest.raises(ValueError, match="more than 1000000 fields"):
        parse_list(b"\x10\x00" * (8 << 20))
    assert time.process_time() - began < 20


def test_numbers_of_all_sizes_are_those_that_were_encoded():
    """Wire types 0, 1 and 5; -1 as int64 has ten octets."""
    message = memoryview(
        b"\x08\xac\x02\x10" + b"\xff" * 9 + b"\x01" + b"\x19" + b"\x01" + bytes(7) + b"\x25\x02\x00\x00\x00"
    )
    assert list(FieldReader(9).fields(message)) == [(1, 300), (2, (1 << 64) - 1), (3, 1), (4, 2)]


def test_a_reply_of_a_full_node_is_parsed_in_a_moment():
    """500 pods of two containers with four devices each."""
    pods = [
        pod(
            "n",
            f"p{one}",
            **{f"c{two}": {SRIOV: [f"{one:04x}:{two:02x}:0{x}.0" for x in range(4)]} for two in range(2)},
        )
        for one in range(500)
    ]
    data = reply(*pods)
    began = time.process_time()
    assert len(parse_list(data)) == 4000
    assert time.process_time() - began < 2
