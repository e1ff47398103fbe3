"""The Helm chart: what the containers of each variant may do. A right that is not in the table is not in the chart."""

from typing import Any

from tests.helpers.charts import VARIANTS, containers, objects_of, pods
from tests.helpers.kubernetes_objects import Manifest

NOBODY, ROOT_USER = 65534, 0

SYSTEM = ("/proc:ro", "/sys:ro")
SHARED = "/run/fabric-exporter:rw"

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


def test_the_device_plugin_assigns_what_the_volume_would() -> None:
    pod = pods(objects_of("infiniband-device-plugin"))["infiniband"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["example.net/umad"] == 1
    assert "devices" not in {volume["name"] for volume in pod["volumes"]}
