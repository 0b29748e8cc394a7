"""Versions of the NVIDIA container toolkit, and the escapes known in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.hosts.doctor.toolkit import check
from kernel_matrix.platforms.check_result import CheckVerdict
from kernel_matrix.platforms.cuda.doctor_toolkit import toolkit_version
from tests.hosts.doctor.daemon import INFO
from tests.hosts.doctor.nouns import gpu, host, install

CTK = "NVIDIA Container Toolkit CLI version {}\ncommit: f785e908a7f72149f8912617058644fd84e38cde\n"
CLI = "cli-version: {}\nlib-version: {}\nbuild date: 2025-05-30T13:47+00:00\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs, the only one that is searched."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.mark.parametrize(
    ("version", "escapes"),
    [
        ("1.16.1", "CVE-2024-0132, CVE-2025-23359, CVE-2025-23266"),
        ("1.16.2", "CVE-2025-23359, CVE-2025-23266"),
        ("1.17.4", "CVE-2025-23266"),
        ("1.17.8", ""),
        ("1.18.0", ""),
    ],
)
def test_the_escapes_of_a_version_are_named(programs: Path, version: str, escapes: str) -> None:
    install(programs, "nvidia-ctk", CTK.format(version))
    (finding,) = check(host(gpu(), info=INFO))
    assert finding.verdict is (CheckVerdict.WARN if escapes else CheckVerdict.OK)
    assert finding.found == f"{version}, which has known container escapes: {escapes}" if escapes else version
    assert ("1.17.8" in finding.advice) == bool(escapes)


def test_older_toolkits_say_it_by_another_program(programs: Path) -> None:
    install(programs, "nvidia-container-cli", CLI.format("1.13.5", "1.13.5"))
    assert toolkit_version() == "1.13.5"


def test_used_toolkit_without_version_is_a_warning(programs: Path) -> None:
    install(programs, "nvidia-ctk", "no such option\n")
    (finding,) = check(host(gpu(), info=INFO))
    assert finding.verdict is CheckVerdict.WARN
    assert "neither nvidia-ctk nor nvidia-container-cli" in finding.found


@pytest.mark.usefixtures("programs")
def test_where_it_is_not_needed_it_may_be_absent() -> None:
    (finding,) = check(host(info=INFO))
    assert (finding.verdict, finding.found) == (CheckVerdict.OK, "not installed, and not needed here")
