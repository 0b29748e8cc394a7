"""How GPUs reach containers, as the doctor tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.hosts.doctor.gpu_access import check
from kernel_matrix.platforms.check_result import CheckVerdict
from tests.hosts.doctor.daemon import INFO
from tests.hosts.doctor.nouns import gpu, host

NO_TOOLKIT = {**INFO, "Runtimes": {"runc": {}}}


@pytest.fixture(autouse=True)
def no_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No device nodes of this machine."""
    monkeypatch.setattr("kernel_matrix.platforms.cuda.device_access._DEV", tmp_path)


def cdi(*names: str, **more: Any) -> dict[str, Any]:
    return {**INFO, **more, "DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={n}"} for n in names]}


def told(info: dict[str, Any], *gpus: Any) -> list[tuple[str, CheckVerdict, str]]:
    return [(f.subject, f.verdict, f.found) for f in check(host(*gpus, info=info))]


def test_a_specification_that_lists_every_gpu_is_well() -> None:
    access, specification = told(cdi("GPU-0", "GPU-1", "all"), gpu(0), gpu(1))
    assert access == ("GPUs in containers", CheckVerdict.OK, "GPU 0, 1: by a CDI specification")
    assert specification[:2] == ("CDI", CheckVerdict.OK)


def test_a_specification_older_than_a_gpu_is_stale() -> None:
    found = told(cdi("GPU-0", "0", "all"), gpu(0), gpu(1))
    assert ("GPUs in containers", CheckVerdict.OK, "GPU 0: by a CDI specification") in found
    assert ("GPUs in containers", CheckVerdict.OK, "GPU 1: by the NVIDIA container toolkit's runtime") in found
    assert ("CDI", CheckVerdict.WARN, "stale: the specification does not list GPU-1") in found


def test_a_stale_file_of_an_older_daemon_is_found_too(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices:\n- name: GPU-of-before\n")
    found = told({**NO_TOOLKIT, "CDISpecDirs": [str(tmp_path)]}, gpu(0))
    assert [(subject, verdict) for subject, verdict, _ in found] == [
        ("GPUs in containers", CheckVerdict.FAIL),
        ("CDI", CheckVerdict.FAIL),
    ]


def test_no_way_in_at_all_says_what_to_install() -> None:
    (finding,) = check(host(gpu(0), info=NO_TOOLKIT))
    assert (finding.verdict, finding.found) == (CheckVerdict.FAIL, "GPU 0: no way into a container")
    assert "container toolkit" in finding.advice


def test_systemd_takes_gpus_away_where_the_toolkit_brought_them() -> None:
    assert [line[0] for line in told({**INFO, "CgroupDriver": "systemd"}, gpu(0))] == ["GPUs in containers", "systemd"]
    assert "systemd" not in [line[0] for line in told(cdi("GPU-0", CgroupDriver="systemd"), gpu(0))]


def test_nothing_is_said_without_a_gpu_or_a_daemon() -> None:
    assert told(INFO) == []
    assert list(check(host(gpu(0)))) == []
    assert list(check(host(gpu(0), info=INFO, sandbox="process"))) == []
