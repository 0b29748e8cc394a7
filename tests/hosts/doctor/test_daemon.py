"""The Docker daemon's lines."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.hosts.doctor.daemon import check
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict
from tests.hosts.doctor.daemon import INFO
from tests.hosts.doctor.nouns import gpu, host


def lines(*args: Any, **settings: Any) -> dict[str, CheckResult]:
    return {finding.subject: finding for finding in check(host(*args, **settings))}


def test_a_daemon_of_today_is_well() -> None:
    found = lines(info=INFO)
    assert {finding.verdict for finding in found.values()} == {CheckVerdict.OK}
    assert found["Docker daemon"].found == "29.1.0 for linux containers"
    assert found["Docker API"].found == "1.52"
    assert found["image store"].found.startswith("containerd (overlayfs): images go by the digest of their manifest")
    assert found["cgroup"].found == "version 2, driver cgroupfs"


def test_the_store_of_older_daemons_is_told_apart() -> None:
    found = lines(info={**INFO, "Driver": "overlay2", "DriverStatus": [["Backing Filesystem", "extfs"]]})
    assert found["image store"].found.startswith("graphdriver (overlay2): images go by the digest of their config")


def test_an_api_that_cannot_ask_for_gpus_is_a_warning() -> None:
    assert lines(info=INFO, api="1.40")["Docker API"].verdict is CheckVerdict.OK
    old = lines(info=INFO, api="1.9")["Docker API"]
    assert (old.verdict, "1.40" in old.advice) == (CheckVerdict.WARN, True)


def test_limits_that_the_daemon_cannot_set_are_named() -> None:
    found = lines(info={**INFO, "CgroupVersion": "1", "PidsLimit": False})["cgroup"]
    assert found.verdict is CheckVerdict.WARN
    assert "cannot limit the number of processes" in found.found


def test_windows_containers_are_of_no_use() -> None:
    assert lines(info={**INFO, "OSType": "windows"})["Docker daemon"].verdict is CheckVerdict.FAIL


@pytest.mark.parametrize(
    ("sandbox", "gpus", "verdict"),
    [
        ("auto", (), CheckVerdict.WARN),
        ("auto", (gpu(),), CheckVerdict.WARN),
        ("docker", (), CheckVerdict.FAIL),
        ("process", (gpu(),), CheckVerdict.OK),
    ],
)
def test_a_daemon_is_missed_where_containers_are_needed(sandbox: str, gpus: Any, verdict: CheckVerdict) -> None:
    found = lines(*gpus, sandbox=sandbox)
    assert found.keys() == {"Docker daemon"}
    assert found["Docker daemon"].verdict is verdict


def test_a_daemon_that_may_not_be_talked_to_is_not_to_be_started() -> None:
    shut = host()
    vars(shut)["docker"] = type(shut.docker)(daemon=None, reason="PermissionError(13, 'Permission denied')")
    (finding,) = check(shut)
    assert "group `docker`" in finding.advice


PODMAN = {**INFO, "BuildahVersion": "1.28.2", "ServerVersion": "4.3.1", "Rootless": False, "DriverStatus": []}


@pytest.fixture
def ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of subordinate ids, of users and of groups; it is empty."""
    path = tmp_path / "subids"
    path.touch()
    monkeypatch.setattr("kernel_matrix.hosts.doctor.daemon._SUBORDINATE_IDS", (path, path))
    return path


def test_podman_is_named_where_it_answers() -> None:
    found = lines(info=PODMAN)
    assert {finding.verdict for finding in found.values()} == {CheckVerdict.OK}
    assert found["Docker daemon"].found == "Podman 4.3.1 for linux containers, in place of Docker"
    assert "Podman" not in found


def test_a_podman_older_than_those_tried_is_a_warning() -> None:
    old = lines(info={**PODMAN, "ServerVersion": "4.2.9"})["Podman"]
    assert (old.verdict, "4.3 or newer" in old.advice) == (CheckVerdict.WARN, True)


def test_rootless_podman_needs_version_2_of_control_groups(ids: Path) -> None:
    ids.write_text(f"{pwd.getpwuid(os.getuid()).pw_name}:100000:65536\n")
    rootless = {**PODMAN, "Rootless": True}
    assert lines(info={**rootless, "CgroupVersion": "2"})["Docker daemon"].verdict is CheckVerdict.OK
    old = lines(info={**rootless, "CgroupVersion": "1"})["Docker daemon"]
    assert old.verdict is CheckVerdict.FAIL
    assert "can neither limit nor pause" in old.found
    assert "boot with version 2" in old.advice


def test_rootless_podman_needs_subordinate_ids(ids: Path) -> None:
    rootless = {**PODMAN, "Rootless": True}
    user = pwd.getpwuid(os.getuid()).pw_name
    ids.write_text(f"{user}-of-another-name:100000:65536\n")
    missing = lines(info=rootless)["subordinate ids"]
    assert (missing.verdict, f"--add-subgids 100000-165535 {user}" in missing.advice) == (CheckVerdict.FAIL, True)
    for owner in (user, os.getuid()):
        ids.write_text(f"{owner}:100000:65536\n")
        assert lines(info=rootless)["subordinate ids"].verdict is CheckVerdict.OK
