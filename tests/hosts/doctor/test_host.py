"""What the host under examination knows of itself."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.errors import GpuLostError
from kernel_matrix.hosts.doctor.host import Host, ask_daemon, per_gpu
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict, ok, warn
from tests.hosts.doctor.clinic import MATRIX
from tests.hosts.doctor.nouns import gpu, host, small_matrix


def test_equal_findings_about_several_gpus_are_one_line() -> None:
    @per_gpu("fan")
    def check(one: Gpu, _host: Host) -> CheckResult:
        return warn("fan", "still", "clean it") if one.index == 1 else ok("fan", "turns")

    found = list(check(host(gpu(0), gpu(1), gpu(2))))
    assert [(f.verdict, f.found) for f in found] == [
        (CheckVerdict.OK, "GPU 0, 2: turns"),
        (CheckVerdict.WARN, "GPU 1: still"),
    ]


def test_a_gpu_that_does_not_answer_does_not_hide_the_others() -> None:
    @per_gpu("fan")
    def check(one: Gpu, _host: Host) -> CheckResult:
        if one.index == 0:
            raise GpuLostError("it is gone", next_step="look at dmesg")
        return ok("fan", "turns")

    lost, well = check(host(gpu(0), gpu(1)))
    assert (lost.subject, lost.verdict, lost.found) == ("fan", CheckVerdict.FAIL, "GPU 0: it is gone")
    assert lost.advice == "look at dmesg"
    assert well.found == "GPU 1: turns"


def test_a_daemon_is_asked_what_it_is(daemon: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", daemon(ServerVersion="29.9.9", api="1.44"))
    seen = ask_daemon()
    assert seen.daemon is not None
    assert (seen.daemon.info["ServerVersion"], seen.daemon.api_version) == ("29.9.9", "1.44")
    gc.collect()  # the SDK leaves its sockets to the collector: where the warning is expected


def test_without_a_daemon_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    seen = ask_daemon()
    assert seen.daemon is None
    assert seen.reason == "there is no socket unix:///nonexistent/docker.sock"


def test_every_policy_that_an_override_makes_counts(tmp_path: Path) -> None:
    text = MATRIX + 'clocks = "lock"\n[[override]]\nmatch.gpu = "h200"\npolicy.clocks = "require"\n'
    made = host(matrix=small_matrix(tmp_path, text))
    assert {policy.clocks for policy in made.policies} == {ClockPolicy.LOCK, ClockPolicy.REQUIRE}
    assert {policy.clocks for policy in replace(made, matrix=None).policies} == {ClockPolicy.OBSERVE}
