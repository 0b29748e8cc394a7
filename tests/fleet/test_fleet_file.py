"""``fleet.toml``: what it holds, and every fault of one at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.errors import ConfigError
from kernel_matrix.executors.engines import ray_jobs
from kernel_matrix.fleet.fleet_file import load_fleet

WHOLE = """
[[sites]]
name = "cluster"
engine = "slurm"
sandbox = "docker"
workspace = "shared"
command = ["/opt/kernel-matrix/bin/kernel-matrix"]
gpus = ["h200", "l40s"]
jobs = 8
hours = 4
options = { partition = "night" }

[[sites]]
name = "here"
engine = "local"
sandbox = "process"
workspace = "/var/tmp/chunks"
"""


def no_partition(options):
    if "partition" in options and options["partition"] != "night":
        yield ConfigFault(("partition",), "there is none of that name")


ENGINES = {"local": lambda _options: (), "slurm": no_partition}


def load(path):
    return load_fleet(path, ENGINES, ("docker", "process"))


def test_file_becomes_sites(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(WHOLE)
    cluster, here = load(path).sites
    assert (cluster.name, cluster.engine, cluster.jobs, cluster.hours) == ("cluster", "slurm", 8, 4)
    assert (cluster.workspace, cluster.gpus) == (tmp_path / "shared", ("h200", "l40s"))
    assert cluster.options == {"partition": "night"}
    assert (here.workspace, here.command, here.gpus, here.jobs) == (Path("/var/tmp/chunks"), (), (), None)


def test_home_of_nobody_is_a_name_like_others(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text(WHOLE.replace('"shared"', '"~no-such-user/shared"'))
    assert load(path).sites[0].workspace == tmp_path / "~no-such-user" / "shared"


FAULTS = {
    "sites[0].name: 'a b' does not fit": ('"cluster"', '"a b"'),
    "sites[1].name: 'cluster' is also the name of site 0": ('"here"', '"cluster"'),
    "sites[0].engine: 'slrum' is not known; allowed: local, slurm; did you mean 'slurm'?": ('"slurm"', '"slrum"'),
    "sites[1].sandbox: 'auto' is not known; allowed: docker, process": ('"process"', '"auto"'),
    "sites[0].options.partition: there is none of that name": ('"night"', '"nigth"'),
    "sites[0].jobs: 0 is out of range; must be at least 1": ("jobs = 8", "jobs = 0"),
    "sites[0].hour: unknown key": ("hours = 4", "hour = 4"),
    "sites[0].gpus[1]: 'h200' is given twice": ('"l40s"', '"h200"'),
    "sites[0].command: must be a list, got the text": ('["/opt/kernel-matrix/bin/kernel-matrix"]', '"kernel-matrix"'),
    "sites[1].workspace: './shared' is also the workspace of site 0": ('"/var/tmp/chunks"', '"./shared"'),
    "sites[1].sandbox: missing; what cells run in there": ('sandbox = "process"\n', ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_told_with_its_place(tmp_path, monkeypatch, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.toml").write_text(WHOLE.replace(*FAULTS[fault]))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "fleet.toml")
    (line,) = caught.value.problems
    assert fault in line
    assert line.startswith(f"{tmp_path / 'fleet.toml'}:")
    assert caught.value.next_step == "kernel-matrix docs fleet lists every key"


def test_all_faults_are_told_at_once(tmp_path):
    text = WHOLE
    for fault in ("sites[0].engine: 'slrum'", "sites[0].jobs", "sites[1].sandbox: missing"):
        text = text.replace(*next(change for words, change in FAULTS.items() if words.startswith(fault)))
    (tmp_path / "fleet.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "fleet.toml")
    assert len(caught.value.problems) == 3


def test_file_that_is_not_there_names_init(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file") as caught:
        load(tmp_path / "fleet.toml")
    assert caught.value.next_step == "kernel-matrix init --example fleet writes one"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "address: missing"),
        ({"address": "head:8265"}, "'head:8265' does not fit"),
        ({"address": "http://user:secret@head:8265"}, "does not fit"),
        ({"address": "http://head:8265", "cpus": 0}, "cpus: 0 is out of range"),
        ({"address": "https://head:8265/", "cpus": 2, "memory_gib": 1.5}, None),
        ({"address": "http://[fd00::1]:8265"}, None),
    ],
)
def test_options_of_ray(options, said):
    faults = [f"{'.'.join(map(str, fault.path))}: {fault.text}" for fault in ray_jobs.check_options(options)]
    assert [said in fault for fault in faults] == ([True] if said else [])
