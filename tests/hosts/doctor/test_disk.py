"""Free space."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kernel_matrix.hosts.doctor.disk import check
from kernel_matrix.platforms.check_result import CheckVerdict
from tests.hosts.doctor.daemon import INFO
from tests.hosts.doctor.nouns import host

GIB = 1 << 30


class Usage(NamedTuple):
    """Of a disk, as far as it matters here."""

    free: int


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes every disk have so many bytes free."""
    return lambda count: monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(count))


@pytest.mark.parametrize(
    ("gib", "verdicts"),
    [
        (100, (CheckVerdict.OK, CheckVerdict.OK, CheckVerdict.OK)),
        (2, (CheckVerdict.WARN, CheckVerdict.OK, CheckVerdict.WARN)),
        (0.1, (CheckVerdict.FAIL, CheckVerdict.WARN, CheckVerdict.FAIL)),
    ],
)
def test_each_place_has_its_own_needs(free: Any, gib: float, verdicts: tuple[CheckVerdict, ...]) -> None:
    free(int(gib * GIB))
    found = list(check(host(info=INFO)))
    assert [finding.subject for finding in found] == ["disk for scratch", "disk for results", "disk for images"]
    assert tuple(finding.verdict for finding in found) == verdicts
    assert all(bool(finding.advice) == (finding.verdict is not CheckVerdict.OK) for finding in found)


def test_missing_folder_is_measured_at_its_nearest_parent(tmp_path: Path) -> None:
    _, results = check(host(results=tmp_path / "not" / "yet"))
    assert results.found.endswith(f"free in {tmp_path}")


def test_the_daemons_folder_counts_only_where_it_can_be_seen(tmp_path: Path) -> None:
    found = list(check(host(info={**INFO, "DockerRootDir": str(tmp_path / "elsewhere")})))
    assert [finding.subject for finding in found] == ["disk for scratch", "disk for results"]
