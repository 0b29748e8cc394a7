"""Kubernetes, GitHub and Buildkite as far as the recipes for shards use them: they start scripts and keep files.

Each job gets a checkout of its own, and from others only what its recipe hands over. What runs is the recipe's script.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.recipes import ROOT, Machine

yaml = pytest.importorskip("ruamel.yaml")

EXAMPLES = ROOT / "docs" / "examples" / "shards"
SHARDS = 2
CHECKED_OUT = ("matrix.toml", "problems", "images")
AGENT = """\
#!{python}
import pathlib, shutil, sys
kept = pathlib.Path({kept!r})
words = sys.argv[1:]
if words[:2] == ["artifact", "download"]:
    pattern, to, *flags = words[2:]
    assert flags in ([], ["--include-retried-jobs"]), flags
    jobs = [job for job in sorted(kept.iterdir()) if flags or not job.name.startswith("retried-")]
    found = [(job, file) for job in jobs for file in job.glob(pattern) if file.is_file()]
    if not found:
        sys.exit("no artifacts found")
    for job, file in found:
        target = pathlib.Path(to, file.relative_to(job))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
else:
    assert words == ["annotate", "--context", "kernels"], words
    (kept.parent / "annotation.md").write_bytes(sys.stdin.buffer.read())
"""


def documents(name: str) -> list[dict[str, Any]]:
    """Every document of a file of the recipes."""
    return list(yaml.YAML(typ="safe").load_all(EXAMPLES / name))


class Server(Protocol):
    """A server that runs shards. Shards count from 0 here."""

    tables: Path
    """The merged tables, after :meth:`collect`."""

    def __init__(self, machine: Machine) -> None: ...

    def measure(self, gpu: str, shard: int, *, attempt: int = 1) -> int:
        """Run a shard and return its exit code."""
        ...

    def collect(self) -> int:
        """Merge what all shards found and return the exit code."""
        ...

    def kept(self, gpu: str, shard: int) -> Path:
        """The folder with the latest results of a shard, which outlives its job."""
        ...


class Kubernetes:
    """A cluster: pods share a folder, and their image has the project."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.results = machine, machine.root / "claim"
        self.tables = self.results / "tables"

    def measure(self, gpu: str, shard: int, *, attempt: int = 1) -> int:
        del attempt  # a further pod gets nothing that says so
        given = {"GPU": gpu, "SHARDS": str(SHARDS), "JOB_COMPLETION_INDEX": str(shard)}
        return self._run("job.yaml", given)

    def collect(self) -> int:
        return self._run("merge.yaml", {})

    def kept(self, gpu: str, shard: int) -> Path:
        return self.results / "shards" / f"{gpu}-{shard}"

    def _run(self, name: str, given: Mapping[str, str]) -> int:
        (job,) = documents(f"kubernetes/{name}")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        (script,) = container["args"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        ran = self.machine.script(
            script,
            {**variables, **given},
            folder=checkout(self.machine),
            shell=container["command"],
            RESULTS=str(self.results),
            HOME=str(self.machine.root),
        )
        return told(ran)


class GitHub:
    """GitHub Actions: jobs hand over artifacts by name."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.artifacts = machine, machine.root / "artifacts"
        self.artifacts.mkdir()
        self.tables = self.artifacts / "tables" / "tables"
        (self.workflow,) = documents("github/shards.yml")

    def measure(self, gpu: str, shard: int, *, attempt: int = 1) -> int:
        return self._job("shard", {"gpu": gpu, "shard": str(shard + 1)}, attempt)

    def collect(self) -> int:
        return self._job("collect", {}, 1)

    def kept(self, gpu: str, shard: int) -> Path:
        return self.artifacts / f"shard-{gpu}-{shard + 1}" / f"{gpu}-{shard + 1}"

    def _job(self, name: str, axes: Mapping[str, str], attempt: int) -> int:
        job = self.workflow["jobs"][name]
        folder = checkout(self.machine)
        variables = {**self.workflow["env"], **job["env"]}
        variables = {key: filled_in(str(value), axes) for key, value in variables.items()}
        code = 0
        for step in job["steps"]:
            if runs(step.get("if", "success()"), failed=code != 0, attempt=attempt):
                ended = self._step(step, axes, variables, folder)
                code = code or (0 if step.get("continue-on-error") else ended)
        return code

    def _step(
        self, step: Mapping[str, Any], axes: Mapping[str, str], variables: Mapping[str, str], folder: Path
    ) -> int:
        if "run" in step:
            return told(self.machine.script(step["run"], variables, folder=folder))
        action = step["uses"].partition("@")[0]
        options = {key: filled_in(str(value), axes) for key, value in step["with"].items()}
        if action == "actions/upload-artifact":
            return self._upload(options, folder)
        if action == "actions/download-artifact":
            return self._download(options, folder / options["path"])
        assert action == "actions/checkout"
        return 0

    def _upload(self, options: Mapping[str, str], folder: Path) -> int:
        artifact = self.artifacts / options["name"]
        if artifact.exists():
            if options.get("overwrite") != "True":
                return 1  # a conflict
            shutil.rmtree(artifact)
        paths = [folder / line for line in options["path"].splitlines()]
        for path in filter(Path.exists, paths):
            # Of one folder its content is kept; of several paths what they have in common is left out.
            target = artifact if len(paths) == 1 else artifact / path.name
            if path.is_dir():
                shutil.copytree(path, target)
            else:
                artifact.mkdir(exist_ok=True)
                shutil.copyfile(path, target)
        return 0

    def _download(self, options: Mapping[str, str], target: Path) -> int:
        found = sorted(self.artifacts.glob(options.get("name") or options["pattern"]))
        for artifact in found:
            is_flat = "name" in options or options.get("merge-multiple") == "True"
            shutil.copytree(artifact, target if is_flat else target / artifact.name, dirs_exist_ok=True)
        return 0 if found else 1


class Buildkite:
    """Buildkite: jobs hand over files by their paths, those of retried jobs only when asked."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.artifacts = machine, machine.root / "artifacts"
        self.artifacts.mkdir()
        self.tables = self.artifacts / "collect" / "tables"
        (self.pipeline,) = documents("buildkite/pipeline.yml")
        machine.add_program("buildkite-agent", AGENT.format(python=sys.executable, kept=str(self.artifacts)))

    def measure(self, gpu: str, shard: int, *, attempt: int = 1) -> int:
        kept = self.artifacts / f"{gpu}-{shard}"
        if attempt > 1:
            kept.rename(kept.with_name(f"retried-{kept.name}"))
        given = {
            "GPU": gpu,
            "BUILDKITE_PARALLEL_JOB": str(shard),
            "BUILDKITE_PARALLEL_JOB_COUNT": str(SHARDS),
            "BUILDKITE_RETRY_COUNT": str(attempt - 1),
        }
        return self._job("h100", given, kept)

    def collect(self) -> int:
        return self._job("collect", {}, self.artifacts / "collect")

    def kept(self, gpu: str, shard: int) -> Path:
        return self.artifacts / f"{gpu}-{shard}" / "shards" / f"{gpu}-{shard}"

    def _job(self, key: str, given: Mapping[str, str], kept: Path) -> int:
        (step,) = (step for step in self.pipeline["steps"] if step["key"] == key)
        folder = checkout(self.machine)
        variables = {**self.pipeline["env"], **step["env"], **given}
        # Buildkite runs a command without `pipefail`.
        code = told(self.machine.script(uploaded(step["command"]), variables, folder=folder, shell=("bash", "-ec")))
        for pattern in step["artifact_paths"]:
            for file in filter(Path.is_file, folder.glob(pattern)):
                target = kept / file.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
        return code


SERVERS: tuple[type[Server], ...] = (Kubernetes, GitHub, Buildkite)


def checkout(machine: Machine) -> Path:
    """A new folder with the project, as a server makes it for each job."""
    checkouts = machine.root / "checkouts"
    checkouts.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=checkouts))
    for name in CHECKED_OUT:
        source = machine.root / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
    return folder


def filled_in(text: str, axes: Mapping[str, str]) -> str:
    """Return ``text`` with the values of a job's axes for GitHub's expressions."""
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda match: axes[match[1]], text)


def runs(condition: str, *, failed: bool, attempt: int) -> bool:
    """Return whether a step with this condition runs."""
    return {"success()": not failed, "always()": True, "github.run_attempt > 1": not failed and attempt > 1}[condition]


def uploaded(text: str) -> str:
    """Return a script as Buildkite leaves it to the shell; a single dollar sign would be Buildkite's."""
    assert re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text) is None, text
    return text.replace("$$", "$")


def told(ran: subprocess.CompletedProcess[str]) -> int:
    """Print what a script printed, for the reader of a failed test; return its exit code."""
    print(ran.stdout, ran.stderr, sep="\n")  # noqa: T201
    return ran.returncode
