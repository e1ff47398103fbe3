"""The files of deploy/ are valid, have no more rights than documented, and name existing objects only."""

import configparser
import importlib
import ipaddress
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from exporter.config.shard import Shard
from exporter.outputs.web import parse_listen_address
from tests.helpers.kubernetes_objects import (
    NEWEST,
    OLDEST,
    WORKLOADS,
    Manifest,
    StrictLoader,
    check_configuration,
    check_flags,
    check_shape,
    documents,
    flag,
    one,
    selector,
)
from tests.helpers.paths import ROOT

DEPLOY = ROOT / "deploy"
README = (DEPLOY / "README.md").read_text()
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
UNIT = DEPLOY / "systemd" / "fabric-exporter.service"
PROGRAM = "/opt/fabric-exporter/bin/fabric-exporter"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

SHARED = "/run/fabric-exporter"

Program = Callable[[str], str]


MANIFESTS = [
    pytest.param(manifest, id=f"{path.stem}-{manifest['kind']}")
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in documents(path)
]
NODE = documents(DEPLOY / "kubernetes" / "daemonset.yaml")
SWITCHES = documents(DEPLOY / "kubernetes" / "switch-poller.yaml")
FABRIC = documents(DEPLOY / "kubernetes" / "infiniband-poller.yaml")
COLLECTOR = documents(DEPLOY / "kubernetes" / "collector.yaml")


def pod_of(manifests: list[Manifest]) -> Manifest:
    (found,) = (one for one in manifests if one["kind"] in WORKLOADS)
    return found["spec"]["template"]


def container_of(manifests: list[Manifest]) -> Manifest:
    (container,) = pod_of(manifests)["spec"]["containers"]
    return container


ROLES = {"node": NODE, "switches": SWITCHES, "infiniband": FABRIC, "collector": COLLECTOR}
ALL = pytest.mark.parametrize("manifests", ROLES.values(), ids=ROLES)
UNPRIVILEGED = pytest.mark.parametrize("manifests", [NODE, SWITCHES, COLLECTOR], ids=["node", "switches", "collector"])


# --- Kubernetes: shape


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", MANIFESTS)
def test_manifest_has_the_shape_that_kubernetes_wants(manifest: Manifest, version: str) -> None:
    check_shape(manifest, version)


@ALL
def test_everything_lies_in_the_namespace_that_the_file_makes(manifests: list[Manifest]) -> None:
    namespace = one(manifests, "Namespace")["metadata"]["name"]
    cluster_wide = {"Namespace", "PriorityClass"}
    places = {m["metadata"].get("namespace") for m in manifests if m["kind"] not in cluster_wide}
    assert places == {namespace}


def test_no_secret_is_shipped() -> None:
    assert MANIFESTS
    assert all(parameter.values[0]["kind"] != "Secret" for parameter in MANIFESTS)


@ALL
def test_selectors_find_the_pod(manifests: list[Manifest]) -> None:
    labels = pod_of(manifests)["metadata"]["labels"]
    assert any(selector(manifest) for manifest in manifests)
    for manifest in manifests:
        if (wanted := selector(manifest)) is not None:
            assert wanted
            assert wanted.items() <= labels.items(), manifest["kind"]


def test_selectors_distinguish_the_roles() -> None:
    labels = [pod_of(manifests)["metadata"]["labels"] for manifests in ROLES.values()]
    assert len({each["app.kubernetes.io/component"] for each in labels}) == len(ROLES)


@ALL
def test_pod_monitor_finds_the_pod_and_its_port(manifests: list[Manifest]) -> None:
    (monitor,) = documents(DEPLOY / "kubernetes" / "podmonitor.yaml")
    spec = monitor["spec"]
    assert one(manifests, "Namespace")["metadata"]["name"] in spec["namespaceSelector"]["matchNames"]
    assert spec["selector"]["matchLabels"].items() <= pod_of(manifests)["metadata"]["labels"].items()
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container_of(manifests)["ports"]}
    assert seconds(endpoint["scrapeTimeout"]) < seconds(endpoint["interval"])


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@ALL
def test_references_lead_to_objects_of_the_file(manifests: list[Manifest]) -> None:
    pod = pod_of(manifests)["spec"]
    account = one(manifests, "ServiceAccount")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    config_maps = {m["metadata"]["name"] for m in manifests if m["kind"] == "ConfigMap"}
    assert {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} == config_maps
    mounted = {mount["name"] for mount in container_of(manifests)["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    if "priorityClassName" in pod:
        assert pod["priorityClassName"] == one(manifests, "PriorityClass")["metadata"]["name"]


@ALL
def test_ports_agree(manifests: list[Manifest]) -> None:
    container = container_of(manifests)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (listen,) = flag(container["args"], "--web.listen-address")
    assert ports == {"metrics": int(listen.rpartition(":")[2])}
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    for manifest in manifests:  # which need not have a Service
        if manifest["kind"] == "Service":
            assert {port["targetPort"] for port in manifest["spec"]["ports"]} <= set(ports)


@ALL
def test_probes_ask_the_endpoints_made_for_them(manifests: list[Manifest]) -> None:
    container = container_of(manifests)
    assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"


@ALL
def test_image_is_of_this_version(manifests: list[Manifest]) -> None:
    assert container_of(manifests)["image"] == f"fabric-exporter:{VERSION}"


# --- Kubernetes: rights


@UNPRIVILEGED
def test_container_has_no_rights(manifests: list[Manifest]) -> None:
    pod, container = pod_of(manifests)["spec"], container_of(manifests)
    assert pod["securityContext"].items() >= {
        ("runAsNonRoot", True),
        ("runAsUser", 65534),
        ("runAsGroup", 65534),
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["volumeMounts"]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly", False)}
    assert writable == ({SHARED} if manifests is NODE else set())
    assert ("initContainers" in pod) == (manifests is NODE)
    assert not pod.get("hostPID", False)
    assert not pod.get("hostIPC", False)


def test_the_init_container_changes_the_shared_folder_and_no_more() -> None:
    """As root, to whom the kubelet gives the folder, but without a capability; how it does: test_jobs_in_containers."""
    (init,) = pod_of(NODE)["spec"]["initContainers"]
    assert init["image"] == container_of(NODE)["image"]
    assert init["securityContext"] == {
        "runAsNonRoot": False,
        "runAsUser": 0,
        "runAsGroup": pod_of(NODE)["spec"]["securityContext"]["runAsGroup"],
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert init["volumeMounts"] == [mount for mount in container_of(NODE)["volumeMounts"] if mount["name"] == "shared"]


@ALL
def test_no_token_of_the_api_is_mounted(manifests: list[Manifest]) -> None:
    assert pod_of(manifests)["spec"]["automountServiceAccountToken"] is False
    assert one(manifests, "ServiceAccount")["automountServiceAccountToken"] is False


@ALL
def test_memory_is_bounded_and_requested_in_advance(manifests: list[Manifest]) -> None:
    resources = container_of(manifests)["resources"]
    assert set(resources["limits"]) == {"memory"}  # a CPU limit would throttle the samples of bursts
    assert set(resources["requests"]) == {"cpu", "memory"}


@ALL
def test_stop_is_awaited_longer_than_the_daemon_needs(manifests: list[Manifest]) -> None:
    assert pod_of(manifests)["spec"]["terminationGracePeriodSeconds"] > 5


def test_node_role_sees_the_host_and_no_more() -> None:
    pod, container = pod_of(NODE)["spec"], container_of(NODE)
    assert pod["hostNetwork"] is True
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert set(paths.values()) == {"/sys", "/proc", SHARED}
    inside = {m["mountPath"]: paths[m["name"]] for m in container["volumeMounts"] if m["name"] in paths}
    assert [inside[path] for path in flag(container["args"], "--path.sysfs")] == ["/sys"]
    assert [inside[path] for path in flag(container["args"], "--path.procfs")] == ["/proc"]
    assert inside[SHARED] == SHARED
    level = one(NODE, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"  # host network and hostPath are refused at any stricter level


def test_manifests_defaults_and_the_hook_agree_on_the_shared_folder() -> None:
    """What the DaemonSet reads is what the program reads by default, where the hook sends, and tmpfiles creates it."""
    nccl = importlib.import_module("exporter.sources.nccl.options").NcclOptions()
    facts = importlib.import_module("exporter.sources.nccl_facts.options").NcclFactsOptions()
    sources = configuration(NODE)["sources"]
    assert sources["nccl"] == {"inspector": list(nccl.inspector), "socket": nccl.socket}
    assert sources["nccl_facts"] == {"logs": list(facts.logs), "textfiles": list(facts.textfiles)}
    assert nccl.socket == importlib.import_module("exporter.hook.fabric_timing").SOCKET
    folders = {*nccl.inspector, *facts.logs, *facts.textfiles}
    assert {str(Path(path).parent) for path in (*folders, nccl.socket)} == {SHARED}
    modes = {path: mode for kind, path, mode, *_ in map(str.split, rules()) if kind == "d"}
    assert modes == {SHARED: "1775", **dict.fromkeys(folders, "1777")}
    (init,) = pod_of(NODE)["spec"]["initContainers"]
    made = shlex.split(init["args"][0].partition("||")[0])
    shared, _, public = " ".join(made).partition(" && ")
    assert shared.split() == ["install", "-d", "-m", modes[SHARED], "-g", "65534", SHARED]
    assert public.split()[:4] == ["install", "-d", "-m", "1777"]
    assert set(public.split()[4:]) == folders


def rules() -> list[str]:
    lines = (DEPLOY / "systemd" / "fabric-exporter.tmpfiles").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_node_role_knows_its_node() -> None:
    fields = {e["name"]: e["valueFrom"]["fieldRef"]["fieldPath"] for e in container_of(NODE)["env"]}
    assert fields == {"NODE_NAME": "spec.nodeName", "HOST_IP": "status.hostIP"}
    (address,) = flag(container_of(NODE)["args"], "--web.listen-address")
    for node in ("192.0.2.1", "2001:db8::1"):
        assert parse_listen_address(address.replace("$(HOST_IP)", node)) == (node, 10315)


def test_node_role_lands_on_gpu_nodes() -> None:
    pod = pod_of(NODE)["spec"]
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # Terms are alternatives, expressions within one are not: two terms of one expression each.
    terms = [[(e["key"], *e["values"]) for e in term["matchExpressions"]] for term in affinity["nodeSelectorTerms"]]
    assert terms == [
        [("nvidia.com/gpu.present", "true")],
        [("feature.node.kubernetes.io/pci-15b3.present", "true")],
    ]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_node_role_never_preempts_a_job() -> None:
    assert one(NODE, "PriorityClass")["preemptionPolicy"] == "Never"
    assert one(NODE, "PriorityClass")["globalDefault"] is False


def test_switch_poller_stays_off_the_host() -> None:
    pod = pod_of(SWITCHES)["spec"]
    assert not pod.get("hostNetwork", False)
    assert pod["volumes"]
    assert all("hostPath" not in volume for volume in pod["volumes"])
    level = one(SWITCHES, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "restricted"


def test_every_switch_is_polled_once() -> None:
    """There are as many pods as shards, each by the number that its name ends with."""
    spec = one(SWITCHES, "StatefulSet")["spec"]
    environment = {each["name"]: each for each in container_of(SWITCHES)["env"]}
    assert environment["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    (text,) = flag(container_of(SWITCHES)["args"], "--shard")
    text = text.replace("$(SHARDS)", environment["SHARDS"]["value"])
    names = [f"{one(SWITCHES, 'StatefulSet')['metadata']['name']}-{number}" for number in range(spec["replicas"])]
    shards = [Shard.parse(text.replace("$(POD_NAME)", name)) for name in names]
    assert shards == [Shard(number, spec["replicas"]) for number in range(spec["replicas"])]
    assert spec["serviceName"] == one(SWITCHES, "Service")["metadata"]["name"]


def test_a_subnet_has_one_sweeper_that_reaches_its_devices() -> None:
    """The old pod ends before the new one starts, and the one container may open /dev/infiniband."""
    spec = one(FABRIC, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    pod, container = spec["template"]["spec"], container_of(FABRIC)
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert set(paths.values()) == {"/dev/infiniband"}
    assert [m["mountPath"] for m in container["volumeMounts"] if m["name"] in paths] == ["/dev/infiniband"]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True, "runAsUser": 0}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    level = one(FABRIC, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"
    sources = configuration(FABRIC)["sources"]
    assert [name for name, keys in sources.items() if keys["enabled"]] == ["ibfabric"]


def test_the_image_has_the_library_of_infiniband() -> None:
    (copied_to,) = (rest.split()[-1] for rest in instructions("COPY") if "libibumad" in rest)
    library = importlib.import_module("exporter.linux.mad.umad").LIBRARY
    assert copied_to == f"/usr/lib/{library}"  # where the loader looks, without a cache


def test_probes_and_discovery_ask_the_service() -> None:
    (config,) = documents(DEPLOY / "kubernetes" / "scrapeconfig.yaml")
    service = one(SWITCHES, "Service")
    address = (
        f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    )
    spec = config["spec"]
    assert [each["url"] for each in spec["httpSDConfigs"]] == [f"http://{address}/sd"]
    assert [each["replacement"] for each in spec["relabelings"] if each.get("targetLabel") == "__address__"] == [
        address
    ]
    assert seconds(spec["scrapeTimeout"]) < seconds(spec["scrapeInterval"])
    (job,) = yaml.safe_load(re.search(r"```yaml\n(.*?)```", README, re.DOTALL)[1])["scrape_configs"]
    camel = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
    shown = [{camel.get(key, key): value for key, value in each.items()} for each in job["relabel_configs"]]
    assert [{"action": "replace"} | each for each in shown] == spec["relabelings"]
    assert (job["metrics_path"], job["http_sd_configs"]) == (spec["metricsPath"], [{"url": f"http://{address}/sd"}])


def creates_secret(name: str) -> list[str]:
    """Return the command of the README that makes a Secret."""
    (create,) = (words for words in commands() if words[:1] == ["kubectl"] and "secret" in words and words[6] == name)
    return create


def test_the_collector_is_one_and_its_password_comes_from_the_secret_that_the_readme_makes() -> None:
    settings = configuration(COLLECTOR)
    assert settings["sources"]
    assert not any(keys["enabled"] for keys in settings["sources"].values())
    assert settings["collector"] == {"slots": "00-ff"}
    (volume,) = (v for v in pod_of(COLLECTOR)["spec"]["volumes"] if "secret" in v)
    (folder,) = (m["mountPath"] for m in container_of(COLLECTOR)["volumeMounts"] if m["name"] == volume["name"])
    create = creates_secret(volume["secret"]["secretName"])
    (file,) = (f"{folder}/{word.removeprefix('--from-file=')}" for word in create[7:])
    assert settings["mqtt"]["password_file"] == file
    assert volume["secret"]["defaultMode"] == 0o440
    level = one(COLLECTOR, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "restricted"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod_of(COLLECTOR)["spec"].keys()


def test_switch_credentials_come_from_the_secret_that_the_readme_makes() -> None:
    pod, container = pod_of(SWITCHES)["spec"], container_of(SWITCHES)
    (volume,) = (v for v in pod["volumes"] if "secret" in v)
    (folder,) = (m["mountPath"] for m in container["volumeMounts"] if m["name"] == volume["name"])
    assert volume["secret"]["defaultMode"] == 0o440
    create = creates_secret(volume["secret"]["secretName"])
    keys = {word.removeprefix("--from-file=") for word in create if word.startswith("--from-file=")}
    files = set()
    targets = configuration(SWITCHES)["switches"]["targets"]
    assert targets
    for target in targets:
        for login in (target[protocol] for protocol in ("snmp", "onyx") if protocol in target):
            assert not {"community", "password"} & login.keys()
            files |= {value for key, value in login.items() if key.endswith("_file")}
    assert files == {f"{folder}/{key}" for key in keys}


def test_switch_poller_reaches_its_switches_only() -> None:
    policy = one(SWITCHES, "NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    blocks = [
        ipaddress.ip_network(to["ipBlock"]["cidr"]) for e in policy["egress"] for to in e["to"] if "ipBlock" in to
    ]
    targets = configuration(SWITCHES)["switches"]["targets"]
    assert targets
    assert blocks
    for target in targets:
        address = ipaddress.ip_address(target["address"].partition(":")[0])
        assert address in ipaddress.ip_network("192.0.2.0/24")  # RFC 5737: an example address
        assert any(address in block for block in blocks)


# --- The program behind the manifests


def config_text(manifests: list[Manifest]) -> str:
    (path,) = flag(container_of(manifests)["args"], "--config.file")
    path = path.replace("$(NODE_NAME)", f"{pod_of(manifests)['spec']['serviceAccountName']}-0")  # of a StatefulSet
    config_map = one(manifests, "ConfigMap")
    (mount,) = (m["mountPath"] for m in container_of(manifests)["volumeMounts"] if m["name"] == "config")
    assert Path(path).parent == Path(mount)
    return config_map["data"][Path(path).name]


def configuration(manifests: list[Manifest]) -> Manifest:
    return yaml.load(config_text(manifests), Loader=StrictLoader)


def unit_args() -> list[str]:
    """Return the flags of /etc/default/fabric-exporter, and those in its comments."""
    lines = (DEPLOY / "systemd" / "fabric-exporter.default").read_text().splitlines()
    values = [line.lstrip("# ").removeprefix("ARGS=") for line in lines if line.lstrip("# ").startswith("ARGS=")]
    assert len(values) == 2
    return [word for value in values for word in shlex.split(shlex.split(value)[0])]


@pytest.mark.parametrize(
    "args",
    [*(container_of(manifests)["args"] for manifests in ROLES.values()), ["run", *unit_args()]],
    ids=[*ROLES, "systemd"],
)
def test_flags_exist(args: list[str]) -> None:
    check_flags(args)


@ALL
def test_configuration_is_accepted(manifests: list[Manifest], tmp_path: Path) -> None:
    check_configuration(config_text(manifests), tmp_path)


# --- Container image


def test_containerfile_is_clean() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("needs hadolint")
    result = subprocess.run([hadolint, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")


def instructions(name: str) -> Iterator[str]:
    joined = re.sub(r"\\\n\s*", " ", CONTAINERFILE)
    yield from (rest for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word == name)


def test_image_runs_the_program_as_nobody_without_a_shell() -> None:
    assert list(instructions("USER")) == ["65534:65534"]
    assert list(instructions("ENTRYPOINT")) == ['["fabric-exporter"]']
    assert list(instructions("CMD")) == ['["run"]']
    assert list(instructions("EXPOSE")) == ["10315"]
    last = CONTAINERFILE.rpartition("\nFROM ")[2]
    assert "\nRUN " not in last


def test_image_takes_nothing_unchecked() -> None:
    installs = [part for run in instructions("RUN") for part in run.split("&&") if "pip install" in part]
    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or {"--no-index", "--no-deps"} <= set(install.split()), install
    assert any("pip wheel" in run and "--no-build-isolation" in run for run in instructions("RUN"))


@pytest.mark.parametrize("lock", ["requirements.txt", "deploy/requirements-build.txt", "deploy/requirements-image.txt"])
def test_every_pin_has_a_hash(lock: str) -> None:
    text = re.sub(r"\\\n\s*", " ", (ROOT / lock).read_text())
    pins = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert pins
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)


def test_each_runtime_dependency_has_an_upper_bound_and_the_lock_is_within() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = [Requirement(text) for texts in project["optional-dependencies"].values() for text in texts]
    required = [Requirement(text) for text in project["dependencies"]] + extra
    assert len(required) >= 9
    assert extra
    assert [one.name for one in required if not any(part.operator == "<" for part in one.specifier)] == []
    lock = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE))
    assert [one.name for one in required if lock[one.name] not in one.specifier] == []
    runtime = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert {Requirement(text).name for text in project["dependencies"]} <= set(runtime)
    image = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "deploy/requirements-image.txt").read_text(), re.MULTILINE))
    assert set(image) >= {*runtime, *(one.name for one in extra)}
    assert [name for name in image if lock[name] != image[name]] == []


def test_image_is_labelled_with_this_version() -> None:
    assert f"VERSION={VERSION}" in list(instructions("ARG"))


def copied() -> set[str]:
    return {
        source for copy in instructions("COPY") if not copy.startswith("--from=") for source in shlex.split(copy)[:-1]
    }


def test_image_copies_existing_files_and_the_build_context_has_no_others() -> None:
    assert copied()
    assert [source for source in sorted(copied()) if not (ROOT / source).exists()] == []
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == copied()


# --- systemd


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return the unit with an existing program, since systemd-analyze checks that it exists."""
    path = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert PROGRAM in text
    path.write_text(text.replace(PROGRAM, sys.executable))
    return path


def test_unit_is_valid(unit: Path, program: Program) -> None:
    command = [program("systemd-analyze"), "verify", "--man=no", unit]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    # Other units of the machine may be complained about; this one may not (unknown keys are warnings only).
    assert "fabric-exporter" not in result.stderr
    assert result.returncode == 0


def drop_in() -> dict[str, str]:
    parser = configparser.RawConfigParser(comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment]  # its keys stay as they are
    parser.read(DEPLOY / "systemd" / "timing.conf")
    assert parser.sections() == ["Service"]
    return dict(parser["Service"])


def test_unit_is_valid_with_the_drop_in_for_timings(unit: Path, program: Program, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / unit.name
    whole.parent.mkdir()
    more = "".join(f"{key}={value}\n" for key, value in drop_in().items())
    whole.write_text(unit.read_text().replace("\n[Install]", f"\n{more}\n[Install]"))
    test_unit_is_valid(whole, program)
    check_exposure(whole, program)


def test_the_drop_in_gives_the_folder_of_the_socket_to_the_user_that_the_readme_makes() -> None:
    settings_of = drop_in()
    folder = Path(importlib.import_module("exporter.sources.common.job_files").TIMING_SOCKET).parent
    (create,) = (words for words in commands() if words[0] == "useradd")
    assert settings_of["User"] == settings_of["Group"] == create[-1]
    assert settings_of["ReadWritePaths"] == str(folder)
    made = shlex.split(settings_of["ExecStartPre"].removeprefix("+"))
    assert made == ["/usr/bin/install", "-d", "-m", "0755", "-o", create[-1], "-g", create[-1], str(folder)]


def test_unit_is_valid_with_the_drop_in_for_pods(unit: Path, program: Program, tmp_path: Path) -> None:
    """It has one capability more, and allows setns(2) for network namespaces, the type that the program names."""
    (block,) = re.findall(r"\*\*Pods\.\*\*.*?```ini\n\[Service\]\n(.*?)```", README, re.DOTALL)
    whole = tmp_path / "whole" / unit.name
    whole.parent.mkdir()
    whole.write_text(unit.read_text().replace("\n[Install]", f"\n{block}\n[Install]"))
    test_unit_is_valid(whole, program)
    found = dict(line.split("=", 1) for line in block.splitlines())
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"] == "CAP_SYS_ADMIN"
    assert found["RestrictNamespaces"] == "net"
    assert settings()["RestrictNamespaces"] == ["yes"], "else the drop-in need not change it"


def check_exposure(unit: Path, program: Program) -> None:
    """Compare the exposure of a unit with that of docs/security.md; another version of systemd rates it otherwise."""
    page = " ".join((ROOT / "docs" / "security.md").read_text().split())
    ((shown, version),) = re.findall(r"rates its exposure (\d\.\d) of 10 \(systemd (\d+)\)", page)
    tool = program("systemd-analyze")
    command = [tool, "security", "--offline=true", "--no-pager", unit]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    (found,) = re.findall(r"Overall exposure level for \S+: (\d+\.\d)", result.stdout)
    if subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.split()[1] == version:
        assert found == shown
    assert float(found) <= 2


def test_unit_is_exposed_little(unit: Path, program: Program) -> None:
    check_exposure(unit, program)


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_unit_allows_what_the_daemon_needs() -> None:
    unit = settings()
    assert "AF_NETLINK" in unit["RestrictAddressFamilies"][0].split()
    assert "AF_UNIX" in unit["RestrictAddressFamilies"][0].split()
    assert unit["ProcSubset"] == ["all"]
    # Processes of jobs are found by their PID and user: all are visible, and users are those of the host.
    assert unit["ProtectProc"] == ["default"]
    assert unit["PrivateUsers"] == ["no"]
    assert "PrivateNetwork" not in unit
    assert unit["CapabilityBoundingSet"] == unit["AmbientCapabilities"] == [""]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert unit["ExecStart"] == [f"{PROGRAM} run $ARGS"]
    assert unit["EnvironmentFile"] == ["-/etc/default/fabric-exporter"]
    assert seconds(unit["TimeoutStopSec"][0]) > 5


def test_unit_has_only_sections_that_systemd_knows() -> None:
    parser = configparser.RawConfigParser(strict=False, comment_prefixes=("#",))
    parser.read(UNIT)
    assert parser.sections() == ["Unit", "Service", "Install"]


# --- README


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


COMMANDS = [pytest.param(words, id=" ".join(words)[:60]) for words in commands()]


def test_readme_shows_commands() -> None:
    assert {words[0] for words in commands()} == {
        "podman",
        "docker",
        "make",
        "apt-get",
        "fabric-exporter",
        "DEMO_FLAGS=--fault pause-storm:gpu-002/4@1m-10m",
        "promtool",
        "kubectl",
        "helm",
        "python3",
        "/opt/fabric-exporter/bin/pip",
        "install",
        "systemd-tmpfiles",
        "systemctl",
        "useradd",
    }


@pytest.mark.parametrize("words", COMMANDS)
def test_files_in_the_readme_exist(words: list[str]) -> None:
    inside = [word for word in words if word.startswith("deploy/") or word.endswith(".txt")]
    kind = Path.is_dir if words[0] == "helm" else Path.is_file
    assert [word for word in inside if not kind(ROOT / word)] == []


def test_links_in_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (DEPLOY / link).exists()] == []


@pytest.mark.parametrize("words", [p for p in COMMANDS if p.values[0][0] == "kubectl"])
def test_objects_in_the_readme_exist(words: list[str]) -> None:
    """Every namespace and every kind/name in commands of kubectl is one of the manifests."""
    made = {(m["kind"].lower(), m["metadata"]["name"]) for manifests in ROLES.values() for m in manifests}
    if "-n" in words:
        assert ("namespace", words[words.index("-n") + 1]) in made
    for word in words:
        kind, slash, name = word.partition("/")
        if slash and kind in {"daemonset", "statefulset", "deployment"}:
            assert (kind, name) in made
    if "namespace" in words:
        assert ("namespace", words[words.index("namespace") + 1]) in made


def test_readme_installs_every_file_of_systemd_to_where_it_is_looked_for() -> None:
    installed = {words[-2]: words[-1] for words in commands() if words[0] == "install"}
    assert installed == {
        "deploy/systemd/fabric-exporter.service": "/etc/systemd/system/fabric-exporter.service",
        "deploy/systemd/fabric-exporter.default": settings()["EnvironmentFile"][0].removeprefix("-"),
        "deploy/systemd/fabric-exporter.tmpfiles": "/etc/tmpfiles.d/fabric-exporter.conf",
        "deploy/systemd/fabric-exporter.socket": "/etc/systemd/system/fabric-exporter.socket",
        "deploy/systemd/timing.conf": "/etc/systemd/system/fabric-exporter.service.d/timing.conf",
    }
    assert {ROOT / source for source in installed} == set((DEPLOY / "systemd").iterdir())
    assert ["python3", "-m", "venv", str(Path(PROGRAM).parent.parent)] in commands()


def test_readme_names_this_version() -> None:
    assert set(re.findall(r"fabric-exporter:(\S+)", README + CONTAINERFILE)) == {VERSION}


def test_tmpfiles_rule_is_accepted(tmp_path: Path, program: Program) -> None:
    tool = program("systemd-tmpfiles")
    rules = (DEPLOY / "systemd" / "fabric-exporter.tmpfiles").read_text().replace("/run/", "/srv/")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    config = tmp_path / "rules.conf"
    config.write_text(re.sub(r"root (root|65534)", f"{user} {group}", rules).replace("/srv/", f"{tmp_path}/"))
    result = subprocess.run([tool, "--create", config], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "fabric-exporter").stat().st_mode & 0o7777 == 0o1775
    assert (tmp_path / "fabric-exporter" / "nccl").stat().st_mode & 0o7777 == 0o1777
