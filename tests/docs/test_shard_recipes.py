"""The recipes for shards on Kubernetes, GitHub Actions and Buildkite: valid, and each of their scripts is run.

The scripts run on a small matrix and this machine's CPU.
"""

from __future__ import annotations

import json
import re
import shutil
import signal

import polars as pl
import pytest

from kernel_matrix.errors import GpuBusyError, InfrastructureError
from tests.baddays.field import PRELOADED, new_field
from tests.recipes import ROOT, Machine, with_baseline
from tests.shard_servers import EXAMPLES, SERVERS, SHARDS, Buildkite, GitHub, Kubernetes, documents, uploaded

HERE, ELSEWHERE = "cpu", "t4"
"""GPU models of the matrix: this machine has the cells of the one, and none of the other."""
COPIES = 3
MANIFESTS = ("setup.yaml", "job.yaml", "merge.yaml")
OLDEST_KUBERNETES = "1.29"
RETRIED = {InfrastructureError.exit_code, GpuBusyError.exit_code}


def two_models(machine, *select):
    """Write the matrix with this machine's CPU and a GPU that is elsewhere."""
    machine.field.write_matrix(*select)
    path = machine.root / "matrix.toml"
    far = f'[[gpus]]\nname = "{ELSEWHERE}"\ncompute_capability = "7.5"\n'
    path.write_text(path.read_text().replace("[[toolchains]]", f"{far}\n[[toolchains]]"))


def planned(machine):
    """The ids of the cells that can run on this machine."""
    ran = machine.field.call("plan", "--json", "--sandbox", "process", "--filter", f"gpu={HERE}")
    assert ran.returncode == 0, ran.stderr
    return sorted(cell["id"] for cell in json.loads(ran.stdout)["cells"])


def part_of(cell_id):
    return int(cell_id[:8], 16) % SHARDS


def with_cells_in_each_shard(machine):
    """Write a matrix with two cells in each shard: ids, and so shards, depend on versions, so draw until it fits."""
    for number in range(COPIES):
        shutil.copyfile(machine.field.candidates / "wrong.py", machine.field.candidates / f"wrong_{number}.py")
    for seed in range(40):
        two_models(machine, "tiny/honest", "tiny/wrong_*")
        path = machine.root / "matrix.toml"
        path.write_text(path.read_text().replace("[protocol]\n", f"[protocol]\nseed = {seed}\n"))
        cells = planned(machine)
        if min([part_of(cell) for cell in cells].count(shard) for shard in range(SHARDS)) >= 2:
            return cells
    raise AssertionError(cells)


@pytest.fixture
def machine(tmp_path):
    with new_field(tmp_path, program=PRELOADED) as field:
        yield Machine(field)


def recorded(folder):
    """Cell id → the record's file, of all attempts below ``folder``."""
    files = sorted(folder.rglob("records/*.json"))
    cells = {path.name.partition(".")[0]: path for path in files}
    assert len(cells) == len(files), files
    return cells


@pytest.mark.torch
@pytest.mark.parametrize("kind", SERVERS)
def test_shards_merge_to_every_cell_once(kind, machine):
    two_models(machine, "tiny/honest")
    with_baseline(machine)
    cells = with_cells_in_each_shard(machine)
    server = kind(machine)
    for shard in range(SHARDS):
        assert server.measure(HERE, shard) == 0
        assert set(recorded(server.kept(HERE, shard))) == {id_ for id_ in cells if part_of(id_) == shard}
    assert server.collect() == 0
    merged = pl.read_parquet(server.tables / "cells.parquet")
    assert sorted(merged["cell_id"]) == cells


@pytest.mark.torch
@pytest.mark.parametrize("kind", SERVERS)
def test_a_further_try_goes_on_with_the_shard(kind, machine):
    with_cells_in_each_shard(machine)
    server = kind(machine)
    assert server.measure(HERE, 0) == 0
    before = recorded(server.kept(HERE, 0))
    lost, *others = sorted(before)
    contents = {id_: before[id_].read_bytes() for id_ in others}
    assert contents
    before[lost].unlink()
    assert server.measure(HERE, 0, attempt=2) == 0
    after = recorded(server.kept(HERE, 0))
    assert set(after) == set(before)
    assert {id_: after[id_].read_bytes() for id_ in others} == contents


@pytest.mark.torch
@pytest.mark.parametrize("kind", SERVERS)
def test_cells_of_another_model_are_left_to_it(kind, machine):
    two_models(machine, "tiny/honest")
    server = kind(machine)
    assert [server.measure(ELSEWHERE, shard) for shard in range(SHARDS)] == [3, 3]


@pytest.mark.torch
@pytest.mark.parametrize("kind", [GitHub, Buildkite])
def test_a_broken_candidate_is_shown_and_exit_5(kind, machine):
    two_models(machine, "tiny/honest")
    with_baseline(machine, candidate="honest")
    shutil.copyfile(machine.field.candidates / "wrong.py", machine.field.candidates / "honest.py")
    server = kind(machine)
    ended = [server.measure(HERE, shard) for shard in range(SHARDS)]
    assert sorted(ended) == [0, 3]  # the one cell is in one shard, and the other has nothing to run
    assert server.collect() == 5
    shown = machine.summary if kind is GitHub else machine.root / "annotation.md"
    assert "1 broke" in shown.read_text()


@pytest.mark.torch
@pytest.mark.parametrize("kind", SERVERS)
def test_a_damaged_record_is_exit_4(kind, machine):
    two_models(machine, "tiny/wrong")
    (shard,) = map(part_of, planned(machine))
    server = kind(machine)
    assert server.measure(HERE, shard) == 0
    (record,) = recorded(server.kept(HERE, shard)).values()
    record.write_text("{")
    assert server.collect() == 4


# Kubernetes


def pod_of(job):
    return job["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_what_kubernetes_wants(name):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for document in documents(f"kubernetes/{name}"):
        for version in (OLDEST_KUBERNETES, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(document, version, strict=True)


def test_schemas_of_kubernetes_refuse_unknown_keys():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    (job,) = documents("kubernetes/job.yaml")
    pod_of(job)["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="resource"):
        kubernetes_validate.validate(job, OLDEST_KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["job.yaml", "merge.yaml"])
def test_pods_are_restricted(name):
    """As Kubernetes' standard ``restricted`` demands, and without a token of the cluster."""
    (job,) = documents(f"kubernetes/{name}")
    pod = pod_of(job)
    assert not {"hostIPC", "hostNetwork", "hostPID"} & set(pod)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    rights = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == rights
    assert not any("hostPath" in volume for volume in pod["volumes"])


def test_parts_of_the_manifests_fit_together():
    (job,), (merge,) = documents("kubernetes/job.yaml"), documents("kubernetes/merge.yaml")
    claim, policy = documents("kubernetes/setup.yaml")
    spec = job["spec"]
    (container,), (merging,) = pod_of(job)["containers"], pod_of(merge)["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == int(variables["SHARDS"]) >= spec["parallelism"]
    assert container["image"] == merging["image"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    for part in (job, merge):
        assert part["spec"]["template"]["metadata"]["labels"] == policy["spec"]["podSelector"]["matchLabels"]
        claims = {v["name"]: v.get("persistentVolumeClaim", {}).get("claimName") for v in pod_of(part)["volumes"]}
        (one,) = pod_of(part)["containers"]
        mounted = {mount["mountPath"]: claims[mount["name"]] for mount in one["volumeMounts"]}
        given = {entry["name"]: entry["value"] for entry in one["env"]}
        assert mounted[given["RESULTS"]] == claim["metadata"]["name"]
        assert given["HOME"] in mounted


def action_for(exit_code, rules, container):
    """The action of the first rule that a pod's exit code fits; ``Count`` where none does."""
    for rule in rules:
        codes = rule.get("onExitCodes")
        fits = codes and (exit_code in codes["values"]) == (codes["operator"] == "In")
        if fits and codes["containerName"] == container:
            return rule["action"]
    return "Count"


def test_pods_try_again_what_may_end_otherwise():
    (job,) = documents("kubernetes/job.yaml")
    rules, (container,) = job["spec"]["podFailurePolicy"]["rules"], pod_of(job)["containers"]
    actions = {code: action_for(code, rules, container["name"]) for code in range(1, 256)}
    again = {code for code, action in actions.items() if action == "Count"}
    assert again == {*RETRIED, 128 + signal.SIGTERM}
    assert {actions[code] for code in actions if code not in again} == {"FailIndex"}
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert job["spec"]["backoffLimitPerIndex"] >= 1
    assert pod_of(job)["restartPolicy"] == "Never"


def test_the_image_is_the_toolchain_s():
    bases = [
        re.findall(r"^FROM (.*)$", path.read_text(), re.MULTILINE)
        for path in (EXAMPLES / "kubernetes" / "Dockerfile", ROOT / "images" / "cu130" / "Dockerfile")
    ]
    assert bases[0] == bases[1]
    assert "@sha256:" in bases[0][0]


# GitHub and Buildkite


def test_github_runs_each_shard_on_each_model():
    (workflow,) = documents("github/shards.yml")
    axes = workflow["jobs"]["shard"]["strategy"]["matrix"]
    assert set(axes) == {"gpu", "shard"}
    assert axes["shard"] == list(range(1, workflow["env"]["SHARDS"] + 1))
    assert workflow["env"]["SHARDS"] == SHARDS


def test_buildkite_runs_each_model_in_the_same_way():
    (pipeline,) = documents("buildkite/pipeline.yml")
    *models, collect = pipeline["steps"]
    assert collect["depends_on"] == [step["key"] for step in models] == ["h100", "l40s"]
    own = {"label", "key", "agents", "env"}
    first, *others = [{key: value for key, value in step.items() if key not in own} for step in models]
    assert all(other == first for other in others)
    assert [step["env"]["GPU"] for step in models] == [step["agents"]["queue"] for step in models]
    assert {rule["exit_status"] for rule in first["retry"]["automatic"]} == {*RETRIED, -1}


def test_a_dollar_sign_for_buildkite_itself_is_found():
    with pytest.raises(AssertionError):
        uploaded("echo $HOME")
    assert uploaded("echo $$HOME $$((1 + 1))") == "echo $HOME $((1 + 1))"


def test_every_recipe_is_tested():
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.is_file()}
    kubernetes = {f"kubernetes/{name}" for name in (*MANIFESTS, "Dockerfile")}
    assert files == {*kubernetes, "github/shards.yml", "buildkite/pipeline.yml"}
    assert {Kubernetes, GitHub, Buildkite} == set(SERVERS)
    (workflow,), (pipeline,) = documents("github/shards.yml"), documents("buildkite/pipeline.yml")
    assert set(workflow["jobs"]) == {"shard", "collect"}
    assert [step["key"] for step in pipeline["steps"]] == ["h100", "l40s", "collect"]
