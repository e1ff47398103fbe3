"""The Helm chart: what the containers of each variant may do. A right that is not in the table is not in the chart."""

from typing import Any

import pytest
import yaml

from tests.helpers.charts import VARIANTS, containers, engine, objects, objects_of, pods
from tests.helpers.kubernetes_objects import Manifest, one

NOBODY, ROOT_USER = 65534, 0

SYSTEM = ("/proc:ro", "/sys:ro")
SHARED = "/run/fabric-exporter:rw"
PODS = ("/var/run/netns:ro", "/var/lib/cni:ro", "/var/log/pods:ro")
KUBELET = "/var/lib/k0s/kubelet/pod-resources:ro"

RIGHTS = {
    # variant, role, container: user, capabilities, privileged, namespaces of the host, what it sees of the host
    ("node", "node", "shared-folder"): (ROOT_USER, [], False, ["Network"], (SHARED,)),
    ("node", "node", "fabric-exporter"): (NOBODY, [], False, ["Network"], (*SYSTEM, SHARED)),
    ("node-optics", "node", "fabric-exporter"): (ROOT_USER, ["NET_ADMIN", "NET_RAW"], False, ["Network"], SYSTEM),
    ("node-options", "node", "fabric-exporter"): (
        NOBODY,
        [],
        False,
        ["Network", "PID"],
        (*SYSTEM, "/var/lib/fabric-exporter:rw"),
    ),
    ("node-pods", "node", "shared-folder"): (ROOT_USER, [], False, ["Network"], (SHARED,)),
    ("node-pods", "node", "fabric-exporter"): (
        ROOT_USER,
        ["SYS_ADMIN"],
        False,
        ["Network"],
        (*SYSTEM, SHARED, *PODS),
    ),
    ("node-pods-all", "node", "fabric-exporter"): (
        ROOT_USER,
        ["SYS_ADMIN", "SYS_PTRACE"],
        False,
        ["Network"],
        (*SYSTEM, *PODS, KUBELET),
    ),
    ("switches", "switches", "fabric-exporter"): (NOBODY, [], False, [], ()),
    ("infiniband", "infiniband", "fabric-exporter"): (ROOT_USER, [], True, [], ("/dev/infiniband:rw",)),
    ("infiniband-device-plugin", "infiniband", "fabric-exporter"): (ROOT_USER, [], False, [], ()),
    ("collector", "collector", "fabric-exporter"): (NOBODY, [], False, [], ()),
    ("all", "node", "shared-folder"): (ROOT_USER, [], False, ["Network"], (SHARED,)),
    ("all", "node", "fabric-exporter"): (NOBODY, [], False, ["Network"], (*SYSTEM, SHARED)),
    ("all", "switches", "fabric-exporter"): (NOBODY, [], False, [], ()),
    ("all", "infiniband", "fabric-exporter"): (ROOT_USER, [], True, [], ("/dev/infiniband:rw",)),
    ("all", "collector", "fabric-exporter"): (NOBODY, [], False, [], ()),
}
"""All rights of all containers: what is not here, no container has."""


def rights(pod: Manifest, container: Manifest) -> tuple[Any, ...]:
    context = {**pod.get("securityContext", {}), **container["securityContext"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    seen = [(paths[m["name"]], m.get("readOnly", False)) for m in container["volumeMounts"] if m["name"] in paths]
    return (
        context["runAsUser"],
        context.get("capabilities", {}).get("add", []),
        context.get("privileged", False),
        [name for name in ("Network", "PID", "IPC") if pod.get(f"host{name}", False)],
        tuple(sorted(f"{path}:{'ro' if read_only else 'rw'}" for path, read_only in seen)),
    )


def every_container() -> dict[tuple[str, str, str], tuple[Manifest, Manifest]]:
    return {
        (name, role, container["name"]): (pod["spec"], container)
        for name in VARIANTS
        for role, pod in pods(objects_of(name)).items()
        for container in containers(pod)
    }


def test_rights_are_those_of_the_table() -> None:
    found = {key: rights(*each) for key, each in every_container().items()}
    assert found == {key: (*row[:4], tuple(sorted(row[4]))) for key, row in RIGHTS.items()}


def test_no_container_writes_to_its_root_or_has_a_token_or_other_rights() -> None:
    made = every_container()
    assert made
    for key, (pod, container) in made.items():
        context = container["securityContext"]
        assert pod["automountServiceAccountToken"] is False, key
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, key
        assert context["readOnlyRootFilesystem"] is True, key
        user, _, privileged, *_ = rights(pod, container)
        if not privileged:
            assert context["capabilities"]["drop"] == ["ALL"], key
            assert context["allowPrivilegeEscalation"] is False, key
        assert {**pod["securityContext"], **context}.get("runAsNonRoot", False) == (user != 0), key
        assert set(container["resources"]["limits"]) - {"example.net/umad"} == {"memory"}, key
        writable = {m["name"] for m in container["volumeMounts"] if not m.get("readOnly", False)}
        assert writable <= {"shared", "devices"}, key


def test_no_account_has_a_token() -> None:
    accounts = [m for m in objects_of("all") if m["kind"] == "ServiceAccount"]
    assert len(accounts) == 4
    assert all(one["automountServiceAccountToken"] is False for one in accounts)


def test_mounts_of_namespaces_that_come_later_are_seen() -> None:
    """Those of the container alone: nothing that it mounts gets to the host."""
    (container,) = pods(objects_of("node-pods"))["node"]["spec"]["containers"]
    spread = {m["mountPath"]: m["mountPropagation"] for m in container["volumeMounts"] if "mountPropagation" in m}
    assert spread == {"/var/run/netns": "HostToContainer"}


def test_the_source_is_on_with_its_rights_alone() -> None:
    def source(values: dict[str, Any]) -> Any:
        (text,) = one(objects({"node": {"enabled": True, **values}}), "ConfigMap")["data"].values()
        return yaml.safe_load(text)["sources"].get("pods")

    assert source({}) is None
    assert source({"pods": {"processes": True, "podResources": True}}) is None
    assert source({"pods": {"enabled": True}}) == {"enabled": True, "processes": False, "kubelet": ""}
    paths = {"interval": "10s", "namespaces": ["/run/netns"]}
    asked = {"pods": {"enabled": True, "podResources": True, "processes": True}, "config": {"sources": {"pods": paths}}}
    socket = "/var/lib/kubelet/pod-resources/kubelet.sock"
    assert source(asked) == {"enabled": True, "processes": True, "kubelet": socket, **paths}
    with pytest.raises(engine().HelmRenderError, match=r"set node\.pods\.enabled"):
        source({"config": {"sources": {"pods": {"enabled": True}}}})


def test_the_device_plugin_assigns_what_the_volume_would() -> None:
    pod = pods(objects_of("infiniband-device-plugin"))["infiniband"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["example.net/umad"] == 1
    assert "devices" not in {volume["name"] for volume in pod["volumes"]}
