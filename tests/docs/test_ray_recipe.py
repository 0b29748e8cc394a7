"""The recipe for Ray on Kubernetes: what of it can be checked without a cluster."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest

from kernel_matrix.api.fleet_plan import load_fleet
from kernel_matrix.errors import GpuBusyError, InfrastructureError
from tests.executors.engines.ray_lab import ray_program
from tests.recipes import ROOT

yaml = pytest.importorskip("ruamel.yaml")

EXAMPLES = ROOT / "docs" / "examples" / "fleets" / "kuberay"
OLDEST_KUBERNETES = "1.29"


def documents(name):
    return list(yaml.YAML(typ="safe").load_all((EXAMPLES / name).read_text()))


def groups():
    """The group of the head and those of the workers."""
    _, cluster = documents("raycluster.yaml")
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


def pods():
    """The specification of every pod, by the name of its container."""
    (run,) = documents("run.yaml")
    specs = [group["template"]["spec"] for group in groups()] + [run["spec"]["template"]["spec"]]
    return {spec["containers"][0]["name"]: spec for spec in specs}


def test_parts_are_what_kubernetes_wants():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    claim, _ = documents("raycluster.yaml")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
    for document in (claim, *documents("run.yaml"), *({**pod, "spec": spec} for spec in pods().values())):
        for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(document, version, strict=True)


def test_cluster_has_the_form_of_kuberay():
    _, cluster = documents("raycluster.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert set(cluster["spec"]) == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    head, *workers = groups()
    assert set(head) == {"rayStartParams", "template"}
    for group in workers:
        assert set(group) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert f"ray[default]=={cluster['spec']['rayVersion']}" in (EXAMPLES / "Dockerfile").read_text()


@pytest.mark.skipif(ray_program() is None, reason="ray is not installed beside the tests")
def test_parameters_are_options_of_ray():
    known = subprocess.run((str(ray_program()), "start", "--help"), capture_output=True, text=True, check=True).stdout
    for group in groups():
        for name, value in group["rayStartParams"].items():
            assert f"--{name} " in known
            assert isinstance(value, str), "KubeRay takes texts only"


def test_pods_are_restricted_and_share_one_folder():
    claim, cluster = documents("raycluster.yaml")
    for spec in pods().values():
        assert not {"hostIPC", "hostNetwork", "hostPID"} & set(spec)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        (volume,) = spec["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert container["volumeMounts"] == [{"name": volume["name"], "mountPath": "/shared"}]
    assert len({spec["containers"][0]["image"] for spec in pods().values()}) == 1
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert cluster["metadata"]["name"] == "kernels"


def test_fleet_file_is_of_this_cluster():
    (site,) = load_fleet(EXAMPLES / "fleet.toml").sites
    _, cluster = documents("raycluster.yaml")
    # KubeRay names the service of the head after the cluster; 8265 is the dashboard's port.
    assert site.options["address"] == f"http://{cluster['metadata']['name']}-head-svc:8265"
    assert str(site.workspace).startswith("/shared/")
    limits = pods()["ray-worker"]["containers"][0]["resources"]["limits"]
    assert int(limits["cpu"]) >= site.options["cpus"] * limits["nvidia.com/gpu"]
    assert int(limits["memory"].removesuffix("Gi")) >= site.options["memory_gib"] * limits["nvidia.com/gpu"]


def test_run_tries_again_what_may_end_otherwise():
    (run,) = documents("run.yaml")
    (rule,) = [rule for rule in run["spec"]["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    again = {InfrastructureError.exit_code, GpuBusyError.exit_code, 128 + signal.SIGTERM}
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("FailJob", "NotIn")
    assert set(rule["onExitCodes"]["values"]) == again


def test_the_image_is_the_toolchain_s():
    bases = [
        re.findall(r"^FROM (.*)$", path.read_text(), re.MULTILINE)
        for path in (EXAMPLES / "Dockerfile", ROOT / "images" / "cu130" / "Dockerfile")
    ]
    assert bases[0] == bases[1]


def test_every_file_is_checked():
    found = {path.name for path in EXAMPLES.iterdir()}
    assert found == {"raycluster.yaml", "run.yaml", "fleet.toml", "Dockerfile"}
