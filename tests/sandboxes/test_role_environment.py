"""What every role finds inside."""

from __future__ import annotations

import re

import pytest

from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, RoleSpec
from kernel_matrix.sandboxes.role_environment import TAIL_BYTES, LogTail


@pytest.mark.parametrize("chunk", [1, 1000, TAIL_BYTES, 3 * TAIL_BYTES])
def test_a_tail_is_the_end_of_the_stream(chunk: int) -> None:
    stream = bytes(range(32, 127)) * 600
    tail = LogTail()
    for start in range(0, len(stream), chunk):
        tail.add(stream[start : start + chunk])
    assert tail.text().encode() == stream[-TAIL_BYTES:]


def test_what_cannot_be_decoded_is_replaced() -> None:
    tail = LogTail()
    tail.add(b"a\xff\nb")
    assert tail.text() == "a\N{REPLACEMENT CHARACTER}\nb"


def _spec(*, gpu_uuid: str = "GPU-1111", session: int = 0, role: Role = Role.RIVAL, contestant: str = "") -> RoleSpec:
    labels = ProcessLabels(run_id="r", cell_id="c" * 32, session=session, gpu_uuid=gpu_uuid, owner="1:2:3")
    return RoleSpec(role=role, labels=labels, image=None, module="m", contestant=contestant)


def test_names_of_concurrent_processes_are_unique() -> None:
    specs = [
        _spec(contestant="compile"),
        _spec(contestant="library"),
        _spec(contestant="compile", session=1),
        _spec(contestant="compile", gpu_uuid="GPU-2222"),
        _spec(role=Role.JUDGE),
        _spec(role=Role.PROBE),
        _spec(role=Role.BUILDER, gpu_uuid=""),
    ]
    names = {spec.name for spec in specs}
    assert len(names) == len(specs)
    assert all(re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", name) for name in names), "what Docker allows"
