"""Owners by every combination of evidence: the best wins, and where evidence disagrees there is none."""

import itertools

import pytest

from exporter.sources.pods.cni_results import Attachment, CniResult
from exporter.sources.pods.model import PodOwner
from exporter.sources.pods.ownership import Evidence, attachments, contradictions, holders, owner
from exporter.sources.pods.pod_resources import Grant

UID, OTHER_UID = "0d9c9b5e-6d2c-4d5c-9c39-2f4f0a1f8a11", "5b0ff7a2-7b5c-4ef6-8d3e-0b1f4d0d4a02"
HERE, THERE = (4, 100), (4, 200)
POD, OTHER = PodOwner("training", "worker-0", UID), PodOwner("training", "worker-1", OTHER_UID)
VF = "0000:c0:01.3"


def result(pod, device=VF):
    return CniResult(pod, "a3", "/run/netns/x", (Attachment("net1", "rail-0", "sriov", device, ""),))


def grant(pod, container="trainer", device=VF):
    return Grant(PodOwner(*pod[:2], "", container), "openshift.io/rail0", device)


KINDS = {
    "results": {HERE: (result(POD),)},
    "uids": {HERE: frozenset({UID})},
    "pods": {UID: POD, OTHER_UID: OTHER},
    "grants": {VF: (grant(POD),)},
}

EXPECTED = {
    # What is there: namespace, name, UID and container that follow from it.
    (): None,
    ("pods",): None,
    ("uids",): PodOwner("", "", UID),
    ("uids", "pods"): POD,
    ("uids", "grants"): PodOwner("", "", UID),
    ("uids", "pods", "grants"): POD._replace(container="trainer"),
    ("results",): POD,
    ("results", "pods"): POD,
    ("results", "uids"): POD,
    ("results", "uids", "pods"): POD,
    ("results", "grants"): POD._replace(container="trainer"),
    ("results", "pods", "grants"): POD._replace(container="trainer"),
    ("results", "uids", "grants"): POD._replace(container="trainer"),
    ("results", "uids", "pods", "grants"): POD._replace(container="trainer"),
    ("grants",): PodOwner("training", "worker-0", "", "trainer"),
    ("pods", "grants"): POD._replace(container="trainer"),
}


@pytest.mark.parametrize("present", EXPECTED, ids="+".join)
def test_every_combination_gives_what_follows_from_it(present):
    evidence = Evidence(**{kind: KINDS[kind] for kind in present})
    assert owner(evidence, HERE, [VF]) == EXPECTED[present]
    assert list(contradictions(evidence)) == []


def test_the_table_has_all_combinations():
    names = list(KINDS)
    every = {one for size in range(5) for one in itertools.combinations(names, size)}
    assert set(EXPECTED) == every


def test_an_unknown_namespace_has_no_owner():
    assert owner(Evidence(**KINDS), THERE) is None
    assert attachments(Evidence(**KINDS), THERE) == ()


def test_the_device_of_a_result_leads_to_the_container():
    evidence = Evidence(results={HERE: (result(POD),)}, grants={VF: (grant(POD),)})
    assert owner(evidence, HERE).container == "trainer"
    assert [one.device for one in attachments(evidence, HERE)] == [VF]


def test_two_containers_with_devices_are_no_container():
    second = "0000:c0:02.1"
    grants = {VF: (grant(POD),), second: (grant(POD, "sidecar", second),)}
    assert owner(Evidence(results={HERE: (result(POD),)}, grants=grants), HERE, [VF, second]).container == ""


# --- disagreement


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(results={HERE: (result(POD), result(OTHER))}),
        Evidence(uids={HERE: frozenset({UID, OTHER_UID})}),
        Evidence(results={HERE: (result(POD),)}, uids={HERE: frozenset({OTHER_UID})}),
    ],
    ids=["results", "processes", "results and processes"],
)
def test_where_evidence_disagrees_the_owner_is_unknown(evidence):
    assert owner(evidence, HERE) is None
    (text,) = contradictions(evidence)
    assert "namespace 100" in text


def test_a_result_without_uid_is_of_the_same_pod():
    """Multus before 3.9 passed no UID on."""
    without = POD._replace(pod_uid="")
    evidence = Evidence(results={HERE: (result(without), result(POD))})
    assert owner(evidence, HERE) == POD
    assert list(contradictions(evidence)) == []


def test_a_uid_is_that_of_the_process_or_of_the_only_folder():
    without = POD._replace(pod_uid="")
    results = {HERE: (result(without),)}
    assert owner(Evidence(results=results, uids={HERE: frozenset({UID})}), HERE) == POD
    assert owner(Evidence(results=results, pods={UID: POD}), HERE) == POD
    recreated = {UID: POD, OTHER_UID: POD._replace(pod_uid=OTHER_UID)}
    assert owner(Evidence(results=results, pods=recreated), HERE) == without


# --- devices


def holder(evidence, device):
    return holders(evidence).get(device)


def test_a_device_of_two_pods_has_no_holder_unless_one_alone_has_a_namespace():
    """kubelet may list a pod that has ended."""
    grants = {VF: (grant(POD), grant(OTHER, "old"))}
    assert holder(Evidence(grants=grants), VF) is None
    one = {HERE: (result(POD, ""),)}
    assert holder(Evidence(grants=grants, results=one), VF) == PodOwner("training", "worker-0", "", "trainer")
    both = {HERE: (result(POD, ""),), THERE: (result(OTHER, ""),)}
    assert holder(Evidence(grants=grants, results=both), VF) is None
    assert holder(Evidence(grants=grants), "0000:00:00.0") is None


def test_the_result_of_a_plugin_that_was_given_a_device_names_its_holder():
    """Without kubelet, or where it lists another pod, which has ended."""
    results = {HERE: (result(POD),), THERE: (result(OTHER, "0000:c0:02.1"),)}
    assert holder(Evidence(results=results), VF) == POD
    assert holder(Evidence(results=results, grants={VF: (grant(OTHER, "old"),)}), VF) == POD
    assert holder(Evidence(results=results, grants={VF: (grant(POD),)}), VF) == POD._replace(container="trainer")
    twice = {HERE: (result(POD),), THERE: (result(OTHER),)}
    assert holder(Evidence(results=twice), VF) is None


def test_the_plugin_that_multus_called_is_preferred_to_multus():
    """The runtime has a result of Multus for eth0, and Multus one of the plugin that it called."""
    made = {}
    for plugin in ("multus-shim", "calico"):
        one = Attachment("eth0", plugin, plugin, "", "")
        made[plugin] = CniResult(POD, "a3", "/run/netns/x", (one,))
    for order in (made.values(), reversed(made.values())):
        assert [one.plugin for one in attachments(Evidence(results={HERE: tuple(order)}), HERE)] == ["calico"]


def test_a_device_of_two_containers_of_one_pod_has_a_pod_and_no_container():
    evidence = Evidence(grants={VF: (grant(POD), grant(POD, "sidecar"))}, pods={UID: POD})
    assert holder(evidence, VF) == POD


def test_devices_of_two_pods_in_one_namespace_are_of_none():
    second = "0000:c0:02.1"
    evidence = Evidence(grants={VF: (grant(POD),), second: (grant(OTHER, device=second),)})
    assert owner(evidence, HERE, [VF, second]) is None
    assert owner(evidence, HERE, [VF, "0000:17:00.0"])[:2] == POD[:2]  # no grant of the third is known
