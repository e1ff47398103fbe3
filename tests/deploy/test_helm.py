"""The Helm chart: each variant is valid, is accepted by the program, and names existing objects only.

A variant is a file of the chart's folder `ci`.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.config.shard import Shard
from exporter.mqtt.topics import parse_slots
from tests.helpers.charts import (
    CHART,
    NAMESPACE,
    VARIANTS,
    builder,
    containers,
    engine,
    objects,
    objects_of,
    pods,
    texts,
    variant,
)
from tests.helpers.kubernetes_objects import (
    NEWEST,
    OLDEST,
    WORKLOADS,
    check_configuration,
    check_flags,
    check_shape,
    flag,
    one,
    selector,
)
from tests.helpers.paths import ROOT

ROLES = {
    "node": {"node": {"enabled": True}},
    "switches": {"switches": {"enabled": True}},
    "infiniband": {"infiniband": {"enabled": True}},
    "collector": {"collector": {"enabled": True, "config": {"mqtt": {"broker": "mqtt.example.net"}}}},
}
"""Values that enable one role."""

EACH = pytest.mark.parametrize("name", VARIANTS)
EACH_ROLE = pytest.mark.parametrize("name", [one for one in VARIANTS if one != "monitoring"])
"""Variants with a role: the other has rules and dashboards alone."""


# --- shape


@EACH
def test_a_variant_has_the_shape_that_kubernetes_wants(name: str) -> None:
    manifests = objects_of(name)
    assert manifests
    for manifest in manifests:
        for version in (OLDEST, NEWEST):
            check_shape(manifest, version)
    names = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(names) == len(set(names))
    assert "Secret" not in {m["kind"] for m in manifests}


@EACH
def test_helm_finds_no_fault(name: str) -> None:
    report = engine().lint(CHART, variant(name), strict=True, kube_version=f"v{OLDEST}.0")
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []  # 1: that there is no icon


def test_the_chart_is_of_this_version_and_of_the_oldest_kubernetes() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    exporter = dict(
        line.split(" = ")
        for line in (ROOT / "pyproject.toml").read_text().splitlines()
        if line.startswith("version = ")
    )
    assert f'"{chart["version"]}"' == f'"{chart["appVersion"]}"' == exporter["version"]
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


def test_objects_of_a_variant_lie_in_the_namespace_of_the_release() -> None:
    manifests = objects_of("all")
    cluster_wide = {m["kind"] for m in manifests if m["metadata"].get("namespace") is None}
    assert cluster_wide == {"PriorityClass"}
    assert {m["metadata"]["namespace"] for m in manifests if m["kind"] != "PriorityClass"} == {NAMESPACE}


@pytest.mark.parametrize(
    ("values", "level"),
    [
        # Pod Security Standards: host network, hostPath and privileged need the first level, root the second.
        (ROLES["node"], "privileged"),
        (ROLES["infiniband"], "privileged"),
        ({"infiniband": {"enabled": True, "deviceResource": "example.net/umad"}}, "baseline"),
        (ROLES["switches"], "restricted"),
        (ROLES["collector"], "restricted"),
        ({**ROLES["collector"], **ROLES["node"]}, "privileged"),
    ],
)
def test_a_namespace_has_the_strictest_level_that_its_pods_allow(values: dict[str, Any], level: str) -> None:
    labels = one(objects({**values, "namespace": {"create": True}}), "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == level
    assert f"pod-security.kubernetes.io/enforce={level}\n" in texts(values)["NOTES.txt"]


@pytest.mark.parametrize("release", ["fabric-exporter", "r" * 53])
def test_names_fit(release: str) -> None:
    """The label of a StatefulSet's pod is its name, a hyphen and ten digits: RFC 1123 allows 63 characters."""
    manifests = objects(variant("all"), name=release)
    assert manifests
    for manifest in manifests:
        longest = 52 if manifest["kind"] in WORKLOADS else 63
        assert len(manifest["metadata"]["name"]) <= longest
        assert all(len(value) <= 63 for value in manifest["metadata"]["labels"].values())


def test_a_release_without_a_role_has_no_pod_and_says_how_to_enable_one() -> None:
    rendered = texts({})
    assert {name for name, text in rendered.items() if text.strip()} == {"NOTES.txt"}
    assert "set node.enabled" in rendered["NOTES.txt"]


# --- references


@EACH_ROLE
def test_selectors_find_pods_of_one_role(name: str) -> None:
    manifests = objects_of(name)
    labels = {role: pod["metadata"]["labels"] for role, pod in pods(manifests).items()}
    assert labels
    for manifest in manifests:
        wanted = selector(manifest)
        if wanted is not None:
            found = [role for role, each in labels.items() if wanted.items() <= each.items()]
            own = manifest["metadata"]["labels"].get("app.kubernetes.io/component")
            assert found == (list(labels) if own is None else [own]), manifest["kind"]
        if manifest["kind"] == "ServiceMonitor":
            services = [one for one in manifests if one["kind"] == "Service"]
            assert len(services) == len(labels)
            wanted = manifest["spec"]["selector"]["matchLabels"]
            assert all(wanted.items() <= each["metadata"]["labels"].items() for each in services)


@EACH_ROLE
def test_references_lead_to_objects_of_the_variant(name: str) -> None:
    manifests = objects_of(name)
    made = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    workloads = [m for m in manifests if m["kind"] in WORKLOADS]
    assert workloads
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        assert ("ServiceAccount", pod["serviceAccountName"]) in made
        config_maps = [v["configMap"]["name"] for v in pod["volumes"] if v["name"] == "config"]
        assert all(("ConfigMap", name) in made for name in config_maps)
        assert config_maps
        if workload["kind"] == "StatefulSet":
            assert ("Service", workload["spec"]["serviceName"]) in made
        if pod.get("priorityClassName", "monitoring") != "monitoring":
            assert ("PriorityClass", pod["priorityClassName"]) in made
        mounts = {m["name"] for c in containers({"spec": pod}) for m in c["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}


@EACH_ROLE
def test_ports_and_probes_agree(name: str) -> None:
    manifests = objects_of(name)
    assert pods(manifests)
    for pod in pods(manifests).values():
        (container,) = pod["spec"]["containers"]
        (listen,) = flag(container["args"], "--web.listen-address")
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"metrics": int(listen.rpartition(":")[2])}
        for probe, url in (("readinessProbe", "/-/ready"), ("livenessProbe", "/-/healthy")):
            made = container[probe].get("httpGet", {"path": url, **container[probe].get("tcpSocket", {})})
            assert made == {"path": url, "port": "metrics"}
        for monitor in (m for m in manifests if m["kind"] in {"PodMonitor", "ServiceMonitor"}):
            (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
            assert endpoint["port"] in ports
            assert int(endpoint["scrapeTimeout"][:-1]) < int(endpoint["interval"][:-1])


# --- the program


@EACH_ROLE
def test_flags_and_configurations_are_accepted(name: str, tmp_path: Path) -> None:
    manifests = objects_of(name)
    assert pods(manifests)
    for pod in pods(manifests).values():
        check_flags(pod["spec"]["containers"][0]["args"])
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and "dashboard" not in manifest["metadata"]["name"]:
            assert manifest["data"]
            for text in manifest["data"].values():
                check_configuration(text, tmp_path)


@pytest.mark.parametrize("shards", [1, 3, 16])
def test_every_switch_is_polled_once(shards: int) -> None:
    workload = one(objects({"switches": {"enabled": True, "shards": shards}}), "StatefulSet")
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    (text,) = flag(container["args"], "--shard")
    text = text.replace("$(SHARDS)", environment["SHARDS"]["value"])
    names = [f"{workload['metadata']['name']}-{number}" for number in range(workload["spec"]["replicas"])]
    made = [Shard.parse(text.replace("$(POD_NAME)", name)) for name in names]
    assert made == [Shard(number, shards) for number in range(shards)]


@pytest.mark.parametrize(("shards", "copies"), [(1, 1), (2, 1), (3, 2), (7, 1), (256, 1)])
def test_every_slot_has_one_pod_for_each_copy(shards: int, copies: int) -> None:
    values = {"collector": {**ROLES["collector"]["collector"], "shards": shards, "copies": copies}}
    manifests = objects(values)
    workload, data = one(manifests, "StatefulSet"), one(manifests, "ConfigMap")["data"]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    (name,) = container["env"]
    assert (name["name"], name["valueFrom"]["fieldRef"]["fieldPath"]) == ("NODE_NAME", "metadata.name")
    (path,) = flag(container["args"], "--config.file")
    pods_of = [f"{workload['metadata']['name']}-{number}" for number in range(workload["spec"]["replicas"])]
    files = [Path(path.replace("$(NODE_NAME)", pod)).name for pod in pods_of]
    assert sorted(files) == sorted(data)
    slots = [slot for file in files for slot in parse_slots(yaml.safe_load(data[file])["collector"]["slots"])]
    assert sorted(slots) == sorted(list(range(256)) * copies)
    shares = [yaml.safe_load(data[file])["collector"]["slots"] for file in files]
    assert {shares.count(share) for share in shares} == {copies}


def test_a_collector_needs_a_broker() -> None:
    with pytest.raises(engine().HelmRenderError, match=r"collector\.config\.mqtt\.broker: give the address"):
        texts({"collector": {"enabled": True}})


def test_a_change_of_the_configuration_replaces_the_pods_of_its_role() -> None:
    def checksums(values: dict[str, Any]) -> dict[str, str]:
        found = pods(objects(values))
        return {role: pod["metadata"]["annotations"]["checksum/config"] for role, pod in found.items()}

    both = {**ROLES["node"], **ROLES["switches"]}
    before = checksums(both)
    after = checksums({**both, "node": {"enabled": True, "config": {"expect": {"rdma_ports": 8}}}})
    assert before["node"] != after["node"]
    assert before["switches"] == after["switches"]
    (pod,) = pods(objects({**ROLES["node"], "restartOnChange": False})).values()
    assert "checksum/config" not in pod["metadata"]["annotations"]


def test_an_image_has_the_digest_in_place_of_the_tag() -> None:
    digest = "sha256:" + "0" * 64

    def image(**values: str) -> str:
        return pods(objects({**ROLES["switches"], "image": values}))["switches"]["spec"]["containers"][0]["image"]

    assert image(repository="images.example.net/e", tag="1.2") == "images.example.net/e:1.2"
    assert image(tag="1.2", digest=digest) == f"fabric-exporter@{digest}"


def test_what_values_add_to_a_pod_is_in_it() -> None:
    added = variant("node-options")["node"]
    pod = pods(objects_of("node-options"))["node"]
    (container,) = pod["spec"]["containers"]
    assert added["extraArgs"][0] in container["args"]
    assert added["extraEnv"][0] in container["env"]
    assert added["extraVolumes"][0] in pod["spec"]["volumes"]
    assert added["extraVolumeMounts"][0] in container["volumeMounts"]
    assert added["podLabels"].items() <= pod["metadata"]["labels"].items()
    assert added["podAnnotations"].items() <= pod["metadata"]["annotations"].items()
    assert pod["spec"]["tolerations"] == added["tolerations"]
    assert "affinity" not in pod["spec"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "images"}]
    assert flag(container["args"], "--web.config.file") == ["/etc/fabric-exporter-web/web.yml"]


# --- commands of the README

README = (ROOT / "deploy" / "README.md").read_text()
COMMANDS = [shlex.split(line) for line in README.splitlines() if line.startswith("helm ")]


def option(words: list[str], name: str) -> str | None:
    return words[words.index(name) + 1] if name in words else None


@pytest.mark.parametrize("words", [one for one in COMMANDS if one[1] != "package"], ids=" ".join)
def test_a_command_of_the_readme_makes_objects(words: list[str]) -> None:
    """With values of the flags, or of the file that the README shows."""
    assert words[1:3] == ["upgrade", "--install"] or words[1] == "template"
    assert ROOT / words[words.index("fabric-exporter") + 1] == CHART
    values = engine().parse_set_string(option(words, "--set") or "")
    if file := option(words, "--values"):
        (shown,) = re.findall(rf"^```yaml\n# {re.escape(file)}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
        values = yaml.safe_load(shown)
    manifests = objects(values)
    kinds = {m["kind"] for m in manifests}
    assert kinds & WORKLOADS
    enabled = {key for key, one in values.items() if one.get("enabled")}
    made_by = {"podMonitor": "PodMonitor", "rules": "PrometheusRule", "dashboards": "ConfigMap"}
    assert {made_by[key] for key in enabled & made_by.keys()} <= kinds
    workloads = {(m["kind"].lower(), m["metadata"]["name"]) for m in manifests if m["kind"] in WORKLOADS}
    namespace = option(words, "--namespace")
    awaited = re.findall(rf"^kubectl -n {namespace} rollout status (\w+)/(\S+)", README, re.MULTILINE)
    assert workloads == set(awaited)


def test_a_command_of_the_readme_makes_a_package() -> None:
    """What is in it: test_a_package_renders_as_the_folder_does."""
    assert [ROOT / one[2] for one in COMMANDS if one[1] == "package"] == [CHART]


# --- what is made of the chart


def test_the_manifests_are_the_rendering_of_the_chart() -> None:
    engine()
    files = builder().rendered()
    assert len(files) >= 6
    assert [path.name for path, text in files.items() if path.read_text() != text] == [], "run `make docs`"


def test_a_package_renders_as_the_folder_does(tmp_path: Path) -> None:
    """It has the files that the folder links to, and not the values of tests."""
    archive = Path(engine().package(CHART, destination=tmp_path))
    values = variant("all")
    assert objects(values, chart=archive) == list(objects_of("all"))
    engine().expand(tmp_path, archive)
    assert not (tmp_path / CHART.name / "ci").exists()
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
