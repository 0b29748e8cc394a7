"""The runner's PID namespace."""

from __future__ import annotations

import pytest
from sim.nvml import H200, SimulatedDriver

from tests.hosts.doctor.clinic import Clinic
from tests.lease.conftest import IN_A_NAMESPACE, needs_namespaces


@needs_namespaces
@pytest.mark.parametrize(("policy", "verdict"), [('exclusive = "require"\n', "fail"), ("", "warn")])
def test_private_pid_namespace_verdict_depends_on_policy(
    gpu_clinic: Clinic, driver: SimulatedDriver, policy: str, verdict: str
) -> None:
    driver.set(H200)
    gpu_clinic.write_matrix(policy)
    line = gpu_clinic.examine("--sandbox", "process", prefix=IN_A_NAMESPACE)["PID namespace"]
    assert line["verdict"] == verdict
    assert "--pid host" in line["advice"]


def test_the_hosts_own_is_well(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(H200)
    assert gpu_clinic.examine("--sandbox", "process").verdict("PID namespace") == "ok"
