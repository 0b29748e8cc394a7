"""A sandbox in which torch cannot be imported: the machine's fault, told with the log, and not the candidate's."""

from __future__ import annotations

import pytest

from tests.baddays.field import ROOT, events, new_field

TORCHLESS = (str(ROOT / "tests" / "sim" / "launch_without_torch.py"),)
WHY = "libtorch_cpu.so: cannot open shared object file"

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("roles", "status", "words"),
    [
        ("candidate", "infra_error", "the worker of candidate: crashed: the process ended without answering (before"),
        ("baseline", "infra_error", "the worker of eager: crashed: the process ended without answering (before"),
        ("candidate,baseline,judge", "container_lost", "the judge ended with code 1"),
    ],
    ids=["candidate", "baseline", "all"],
)
def test_torchless_sandbox_is_an_infrastructure_failure(roles, status, words, tmp_path):
    with new_field(tmp_path, program=TORCHLESS) as field:
        broken = field.scratch / "broken"  # other users can pass through this folder
        broken.mkdir()
        (broken / "torch.py").write_text(f"raise ImportError({WHY!r})")
        ran = field.run("--sandbox", "process", WITHOUT_TORCH=roles, BROKEN_TORCH=str(broken))
        assert ran.returncode == 4, ran.stderr
        (*_, last) = field.records()
    outcome = last["outcome"]
    assert (outcome["status"], outcome["fault"], outcome["stage"]) == (status, "infra", "start")
    assert words in outcome["evidence"]["message"]
    assert WHY in outcome["evidence"]["log"]
    assert {event["fault"] for event in events(ran.stdout) if event["event"] == "cell_ended"} == {"infra"}
