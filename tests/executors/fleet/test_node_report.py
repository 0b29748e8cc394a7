"""What nodes say of themselves: refused if it is no report, and if their code measures in another way."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.executors.engines.local import open_session
from kernel_matrix.executors.fleet.node_report import NodeReport, ask_nodes, check_versions
from kernel_matrix.fleet import Site
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.hosts.code_versions import measurement_version
from kernel_matrix.matrix import Toolchain
from kernel_matrix.model.messages import to_json
from kernel_matrix.plan import HostInventory
from kernel_matrix.platforms import GpuLink
from kernel_matrix.platforms.registry import PLATFORMS
from kernel_matrix.untrusted_json import MAX_BYTES
from kernel_matrix.version import __version__
from tests.plan.nouns import CPU_DEVICE, H200_DEVICE

SLOT = SlotKind("here", "cpu")
PREFIX = "km-01234567"
REPORT = NodeReport(
    version=__version__,
    measurement_versions={name: measurement_version(name) for name in PLATFORMS},
    hostname="n17",
    inventory=HostInventory(
        gpus=(replace(H200_DEVICE, links=(GpuLink(to="GPU-2", kind="pcie"),)), CPU_DEVICE),
        sandbox="docker",
        uses_images=True,
        images={"cu128": "", "cu130": "not pulled"},
        environments={"here": Toolchain(name="here", environment="auto", platform="cuda", torch="2.13.0")},
        compilers=("cuda",),
        clocks_reason="",
    ),
    image_ids={"cu128": "sha256:1"},
)
DOCUMENT = to_json(REPORT)


@pytest.fixture
def ask(tmp_path):
    """Lets a job say what is in the file ``report``, or run what it is given; returns what was understood."""

    def asked(report=None, *, run='[ ! -e "$1" ] || cp -RP "$1" "${4%/*}/report.json"', refresh=True, **order):
        path = tmp_path / "report"
        if report is not None:
            path.write_text(report if isinstance(report, str) else json.dumps(report))
        command = ("sh", "-c", run, "sh", str(path))
        site = Site(
            name="here",
            engine="local",
            sandbox="process",
            workspace=tmp_path / "workspace",
            gpus=("cpu",),
            command=command,
        )
        session = open_session(site, PREFIX)
        found = ask_nodes(site, session, prefix=PREFIX, order=order, limit_s=60, refresh=refresh)
        assert list(found) == [SLOT]
        return found[SLOT]

    return asked


def changed(**changes):
    return {**DOCUMENT, **changes}


def test_report_comes_as_it_was_written(ask):
    assert ask(DOCUMENT) == REPORT


def test_error_on_the_node_is_told(ask):
    assert ask({"error": "cannot read matrix.toml"}) == "cannot read matrix.toml"


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ("", "no report: "),
        ("{", "no report: "),
        ("[" * 100_000, "no report: "),
        ("[]", "no report: holds a list, not an object"),
        ({}, "its report is refused: NodeReport: "),
        (changed(colour="red"), "its report is refused: NodeReport: unknown key 'colour'"),
        (changed(hostname=7), "its report is refused: NodeReport: 'hostname' cannot be 7"),
        (changed(measurement_versions="all"), "its report is refused: NodeReport: 'measurement_versions' cannot be"),
        (changed(image_ids={"cu128": None}), "its report is refused: NodeReport: 'image_ids' cannot be"),
        (changed(inventory=None), "its report is refused: HostInventory: expected an object"),
        (changed(inventory={"gpus": [{"uuid": "x"}]}), "its report is refused: Gpu: "),
        (changed(inventory={"gpus": 7}), "its report is refused: HostInventory: 'gpus' cannot be 7"),
        (changed(inventory={"images": {"cu128": 7}}), "its report is refused: HostInventory: 'images' cannot be"),
    ],
    ids=lambda one: str(one)[-20:],
)
def test_what_is_no_report_is_told(ask, report, said):
    assert ask(report).startswith(said)


def as_link(path):
    path.with_name("whole").write_text(json.dumps(DOCUMENT))
    path.symlink_to(path.with_name("whole"))


def as_huge_file(path):
    path.write_text(json.dumps(DOCUMENT))
    os.truncate(path, MAX_BYTES + 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (as_link, "no report: is a symbolic link"),
        (os.mkfifo, "no report: is not a regular file"),
        (os.mkdir, "no report: is not a regular file"),
        (as_huge_file, "no report: is larger than 64 MiB"),
    ],
)
def test_report_that_is_no_plain_file_is_refused(ask, tmp_path, make, said):
    make(tmp_path / "report")
    assert ask().startswith(said)


def test_end_of_the_log_is_told_where_there_is_no_report(ask):
    said = ask(run="seq 1 1000; echo no torch >&2; exit 1")
    assert said.startswith("no report: there is no such file; ")
    assert said.endswith("999\n1000\nno torch")
    assert len(said) < 600


def test_report_is_kept_until_something_else_is_asked(ask):
    assert ask(DOCUMENT, digest="one") == REPORT
    later = changed(hostname="n18")
    assert ask(later, refresh=False, digest="one") == REPORT
    assert ask(later, refresh=False, digest="other") == replace(REPORT, hostname="n18")
    assert ask(DOCUMENT, refresh=True, digest="other") == REPORT


def test_refused_report_is_not_kept(ask):
    assert isinstance(ask("{"), str)
    assert ask(DOCUMENT, refresh=False) == REPORT


def test_same_versions_are_accepted():
    check_versions({SLOT: REPORT, SlotKind("there", "h200"): replace(REPORT, version="0.0.1")})


@pytest.mark.parametrize("name", sorted(PLATFORMS))
@pytest.mark.parametrize("version", ["0" * 64, None])
def test_another_measurement_version_is_refused(name, version):
    versions = {**REPORT.measurement_versions, name: version}
    if version is None:
        del versions[name]
    other = replace(REPORT, version="0.0.1", hostname="n18", measurement_versions=versions)
    with pytest.raises(InfrastructureError) as caught:
        check_versions({SLOT: REPORT, SlotKind("there", "h200"): other})
    assert caught.value.what == "site there: n18 has kernel-matrix 0.0.1, which measures otherwise"
    assert __version__ in caught.value.next_step


def test_platform_that_only_the_node_has_does_not_matter():
    versions = {**REPORT.measurement_versions, "abacus": "0" * 64}
    check_versions({SLOT: replace(REPORT, measurement_versions=versions)})


def test_cell_node_of_this_installation_is_accepted(ask, tmp_path):
    matrix = Path(__file__).parents[3] / "matrix.toml"
    run = f'PYTHONPATH={matrix.parent / "runner"} exec {sys.executable} -m kernel_matrix "$2" "$3" "$4"'
    found = ask(run=run, matrix=str(matrix), sandbox="process", engine="local")
    assert isinstance(found, NodeReport), found
    check_versions({SLOT: found})
    assert [gpu.uuid for gpu in found.inventory.gpus] == ["cpu"]
