"""The CPU's frequency governor."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.hosts.doctor.cpu import check
from kernel_matrix.platforms.check_result import CheckVerdict
from tests.hosts.doctor.nouns import host


@pytest.fixture
def cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a machine without cpufreq begins."""
    monkeypatch.setattr("kernel_matrix.platforms.cpu._FREQUENCIES", tmp_path)
    return tmp_path


def govern(cores: Path, *governors: str) -> None:
    for number, governor in enumerate(governors):
        folder = cores / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")


def test_a_virtual_machine_hides_it(cores: Path) -> None:
    (finding,) = check(host())
    assert finding.verdict is CheckVerdict.OK
    assert finding.found.startswith("hidden")


@pytest.mark.parametrize(
    ("governors", "verdict"),
    [(("performance", "performance"), CheckVerdict.OK), (("performance", "powersave"), CheckVerdict.WARN)],
)
def test_every_core_has_to_be_at_full_speed(cores: Path, governors: tuple[str, ...], verdict: CheckVerdict) -> None:
    govern(cores, *governors)
    (finding,) = check(host())
    assert finding.verdict is verdict
    assert (", ".join(sorted(set(governors)))) in finding.found
