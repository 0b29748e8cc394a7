"""An engine of another package, built, installed and used by ``run --fleet``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.own_python import ROOT, pip

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
PACKAGE = Path(__file__).with_name("nice_engine")
FLEET = f"""
[[sites]]
name = "here"
engine = "nice"
sandbox = "process"
workspace = "workspace"
command = ["{sys.executable}", "-m", "kernel_matrix"]
options = {{ nice = 5 }}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that the package is installed into."""
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--target", str(target), str(PACKAGE), folder=target)
    return target


@pytest.fixture
def call(field, installed):
    """Runs a verb on a fleet file, where the package is installed."""
    field.write_matrix("tiny/honest", "tiny/wrong")

    def called(*words, fleet=FLEET, packages=installed):
        (field.root / "fleet.toml").write_text(fleet)
        return field.call(*words, PYTHONPATH=f"{packages}:{ROOT / 'runner'}:{ROOT}")

    return called


def test_cells_run_through_an_engine_of_another_package(call, field):
    ran = call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stderr) == (0, "")
    records = {record["cell"]["candidate"]: record for record in field.records()}
    assert {name: record["outcome"]["status"] for name, record in records.items()} == {
        "tiny/honest": "passed",
        "tiny/wrong": "incorrect_values",
    }
    assert len(field.records()) == 2
    check, *chunks = (field.root / "workspace" / "jobs.txt").read_text().splitlines()
    assert check.startswith("core km-")
    assert "-check-core-" in check
    assert chunks
    assert list((field.root / "workspace").rglob("chunk.json")) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("nice = 5", "nice = 20"), "sites[0].options.nice: 20 is out of range; must be from 0 to 19"),
        (("nice = 5", "nise = 5"), "sites[0].options.nise: unknown key; allowed: nice"),
        (
            ('"nice"', '"nicer"'),
            "sites[0].engine: 'nicer' is not known; allowed: local, slurm, ray, nice; did you mean",
        ),
    ],
)
def test_wrong_option_of_it_is_one_line(call, field, change, said):
    ran = call("run", "--fleet", "fleet.toml", fleet=FLEET.replace(*change))
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = [line for line in ran.stderr.splitlines() if "sites[0]" in line]
    assert said in line
    assert "fleet.toml:" in line
    assert "Traceback" not in ran.stderr
    assert not (field.root / "workspace").exists()


def test_engine_that_is_not_installed_is_told(call, tmp_path):
    ran = call("fleet", "check", packages=tmp_path)
    assert ran.returncode == 2
    assert "'nice' is not known; allowed: local, slurm" in ran.stderr
