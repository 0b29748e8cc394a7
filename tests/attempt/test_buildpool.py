"""The builds of a run: each content once, concurrently, again after machine failures, and none after its end."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kernel_matrix.attempt import RunContext
from kernel_matrix.attempt.building import BuildCancelledError
from kernel_matrix.attempt.buildpool import BuildListener, build_pool, builds_at_once
from kernel_matrix.inside.wire import (
    MAX_FROM_JUDGE,
    CallFailure,
    Channel,
    FrameKind,
    KernelCode,
    pack_code,
    pack_failed,
)
from kernel_matrix.matrix import GpuAxis, Protocol
from kernel_matrix.model.enums import Dtype, Fault, Language, Status, Tier
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import ProcessExit
from tests.attempt.stage import FIRST, cannot_start, connected, hands_over

H200 = Gpu(platform="cuda", uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0")
A100 = Gpu(platform="cuda", uuid="GPU-2", name="NVIDIA A100", compute_capability="8.0")
KERNEL = KernelCode("softmax_kernel", "9.0", 16, 0, 0, 32, 0, "ab" * 32)


@pytest.fixture
def bench(stage):
    called_off = threading.Event()
    made = RunContext(
        run_id="run-1",
        sandbox=stage,
        sandbox_status=stage.status(),
        owner="owner",
        scratch=stage.scratch,
        cancelled=called_off.is_set,
    )
    return made, called_off


@pytest.fixture
def pool(bench):
    """Opens a pool over some devices."""

    def opened(*gpus, workers=2, **more):
        return build_pool(bench[0], {}, gpus or (FIRST,), workers=workers, **more)

    return opened


def fails(failure, text):
    """Make a builder that fails with this message."""

    def play(spec):
        with connected(spec) as connection:
            Channel(connection, MAX_FROM_JUDGE).send(FrameKind.FAILED, 0, pack_failed(failure, text))
        return ProcessExit(role=spec.role, code=0)

    return play


def hands_over_after(event):
    """Make a builder that waits for this event."""

    def play(spec):
        event.wait(20)
        return hands_over(b"artefact")(spec)

    return play


def test_the_same_content_is_built_once_and_serves_every_cell(stage, pool):
    cells = [stage.cell(name, builder=[hands_over(b"artefact")], source="same\n") for name in ("one", "twin")]
    other = stage.cell("other", builder=[hands_over(b"another")], source="other\n")
    with pool() as builds:
        builds.submit([*cells, other])
        first, second, third = (builds.result(cell) for cell in (*cells, other))
        assert first is second
        assert first.artifact.read_bytes() == b"artefact"
        assert third.artifact.read_bytes() == b"another"
        assert all(builds.is_ready(cell) for cell in cells)
    assert len(stage.launched) == 2


def test_what_needs_no_build_is_ready_and_has_none(stage, pool):
    cell = stage.cell("plain")
    with pool() as builds:
        builds.submit([cell])
        assert builds.is_ready(cell)
        assert builds.result(cell) is None


def test_published_cells_are_ready_when_nothing_is_left_to_build(stage, pool):
    may_end, ended = threading.Event(), threading.Semaphore(0)
    publish = {"protocol": Protocol(tier=Tier.PUBLISH, sessions=5)}
    plain, published = stage.cell("plain"), stage.cell("published", **publish)
    slow = stage.cell("slow", builder=[hands_over_after(may_end)], source="slow\n", **publish)
    with pool(listener=BuildListener(ready=ended.release)) as builds:
        builds.submit([plain, published, slow])
        assert builds.is_ready(plain)
        assert not builds.is_ready(published)
        may_end.set()
        assert ended.acquire(timeout=20)
        assert builds.is_ready(published)
        assert builds.is_ready(slow)


def test_published_cells_wait_for_what_is_only_compiled(stage, pool):
    published = stage.cell("published", protocol=Protocol(tier=Tier.PUBLISH, sessions=5))
    elsewhere, ready = stage.cell("elsewhere", compile_only=True), threading.Event()
    with pool(listener=BuildListener(ready=ready.set)) as builds:
        builds.expect(elsewhere)
        assert not builds.is_ready(published)
        builds.compiled(elsewhere)
        assert ready.is_set()
        assert builds.is_ready(published)


def test_published_cells_of_open_runs_wait_for_own_builds(stage, pool):
    may_end = threading.Event()
    slow = stage.cell("slow", builder=[hands_over_after(may_end)], source="slow\n")
    published = stage.cell("published", protocol=Protocol(tier=Tier.PUBLISH, sessions=5))
    with pool(builds_first=False) as builds:
        builds.submit([slow, published])
        assert builds.is_ready(published)
        assert not builds.is_ready(slow)
        may_end.set()


def test_published_cells_of_open_runs_are_timed_between_builds(stage, pool):
    may_end, started, timed = threading.Event(), queue.SimpleQueue(), threading.Event()
    first = stage.cell("first", builder=[hands_over_after(may_end)], source="first\n")
    second = stage.cell("second", builder=[hands_over(b"artefact")], source="second\n")
    published = stage.cell("published", protocol=Protocol(tier=Tier.PUBLISH))

    def time_one():
        with builds.turn_to_time(published):
            timed.set()
            builds.submit([second])
            assert started.empty()

    with (
        pool(builds_first=False, listener=BuildListener(started=started.put)) as builds,
        ThreadPoolExecutor() as executor,
    ):
        builds.submit([first])
        assert started.get(timeout=20) is first
        with builds.turn_to_time(stage.cell("plain")):  # waits for nothing
            timing = executor.submit(time_one)
            assert not timed.wait(0.1)
        may_end.set()
        timing.result(timeout=20)
        assert builds.result(second).artifact is not None


def test_as_many_are_built_at_once_as_there_are_workers(stage, pool):
    meet = threading.Barrier(3, timeout=20)

    def builds_with_others(spec):
        meet.wait()
        return hands_over(b"artefact")(spec)

    cells = [stage.cell(str(n), builder=[builds_with_others], source=f"x = {n}\n") for n in range(3)]
    with pool(workers=3) as builds:
        assert builds.workers == 3
        builds.submit(cells)
        assert all(builds.result(cell).artifact for cell in cells)


@pytest.mark.parametrize(
    ("cores", "devices", "builds"),
    [
        (16, (), 16),
        (16, (FIRST,), 16),
        (16, (H200,), 13),
        (16, (FIRST, H200, A100), 10),
        (16, (H200,) * 8, 8),
        (3, (H200,), 2),
        (1, (H200,), 1),
    ],
)
def test_builds_leave_cores_for_what_is_timed_on_gpus(cores, devices, builds, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(cores))
    assert builds_at_once(devices) == builds


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
@pytest.mark.parametrize("reserved", [0, 1])
def test_builders_give_way_and_use_no_reserved_core(reserved, stage, pool):
    mine = sorted(os.sched_getaffinity(0))
    seen = []

    def looks(spec):
        program = "import os; print(*os.sched_getaffinity(0))"
        cores = subprocess.run((sys.executable, "-c", program), check=True, capture_output=True, text=True).stdout
        seen.append((spec.gives_way, sorted(map(int, cores.split()))))
        return hands_over(b"artefact")(spec)

    cell = stage.cell("looks", builder=[looks], source="x = 1\n")
    with pool(reserved=reserved) as builds:
        builds.submit([cell])
        assert builds.result(cell).artifact
    assert seen == [(reserved > 0, mine[reserved:])]
    assert sorted(os.sched_getaffinity(0)) == mine, "the runner itself may use all"


def test_who_listens_is_told_of_each_build(stage, pool):
    told = []
    listener = BuildListener(
        started=lambda cell: told.append(("started", cell.id)),
        ended=lambda cell, build: told.append(("ended", cell.id, build.artifact is not None)),
        ready=lambda: told.append(("ready",)),
    )
    cell = stage.cell("one", builder=[hands_over(b"artefact")])
    with pool(listener=listener) as builds:
        builds.submit([cell])
        builds.result(cell)
    assert told == [("started", cell.id), ("ended", cell.id, True), ("ready",)]


def test_what_the_machine_failed_is_built_again_when_asked(stage, pool):
    cell = stage.cell("unlucky", builder=[cannot_start, hands_over(b"artefact")])
    with pool() as builds:
        builds.submit([cell])
        assert builds.result(cell).outcome.fault is Fault.INFRA
        builds.retry_if_lost(cell)
        assert builds.result(cell).artifact.read_bytes() == b"artefact"
        builds.retry_if_lost(cell)
        assert builds.result(cell).outcome is None
    assert len(stage.launched) == 2


def test_what_does_not_compile_is_not_built_again(stage, pool):
    cell = stage.cell("bad", builder=[fails(CallFailure.COMPILE, "k.cu(3): error: no"), hands_over(b"artefact")])
    with pool() as builds:
        builds.submit([cell])
        assert builds.result(cell).outcome.status is Status.COMPILE_ERROR
        builds.retry_if_lost(cell)
        assert builds.result(cell).outcome.evidence.message == "k.cu(3): error: no"


def test_a_source_that_cannot_be_read_is_the_machines_fault(stage, pool):
    cell = stage.cell("gone", builder=[hands_over(b"artefact")])
    cell.candidate.path.unlink()
    with pool() as builds:
        builds.submit([cell])
        assert builds.result(cell).outcome.status is Status.INFRA_ERROR


def test_pool_cancelled_run_drops_builds_not_begun(stage, bench, pool):
    _, called_off = bench
    begun, go_on = threading.Event(), threading.Event()

    def slow(spec):
        begun.set()
        assert go_on.wait(20)
        return hands_over(b"artefact")(spec)

    cells = [stage.cell(str(n), builder=[slow], source=f"x = {n}\n") for n in range(2)]
    with pool(workers=1) as builds:
        builds.submit(cells)
        assert begun.wait(20)
        called_off.set()
        go_on.set()
        for cell in cells:
            with pytest.raises(BuildCancelledError):
                builds.result(cell)
    assert len(stage.launched) == 1


@pytest.fixture
def triton(stage):
    """Makes Triton cells for a GPU."""

    def cell(name, *plays, **changes):
        made = stage.cell(name, builder=plays, gpu=GpuAxis(name="gpu", platform="cuda"), source="triton\n")
        return replace(made, candidate=replace(made.candidate, language=Language.TRITON), **changes)

    return cell


def speaks(spec):
    with connected(spec) as connection:
        channel = Channel(connection, MAX_FROM_JUDGE)
        assert channel.receive()[0] is FrameKind.LOAD
        for kind, payload in (
            (FrameKind.CHUNK, b"cache"),
            (FrameKind.CODE, pack_code([KERNEL])),
            (FrameKind.DONE, b"remarks"),
        ):
            channel.send(kind, 0, payload)
    return ProcessExit(role=spec.role, code=0)


def test_tritons_kernels_are_compiled_ahead_where_there_is_a_gpu(stage, pool, triton):
    cell = triton("softmax", speaks)
    with pool(H200) as builds:
        builds.submit([cell])
        seen = builds.result(cell).seen
    assert (seen.cached, seen.arch, seen.log_tail) == (False, "9.0a", "remarks")
    assert [(kernel.name, kernel.registers, kernel.launchable) for kernel in seen.kernels] == [
        ("softmax_kernel", 16, True)
    ]


def test_what_triton_cannot_compile_ahead_is_left_to_the_device(stage, pool, triton):
    cell = triton("softmax", fails(CallFailure.COMPILE, "CompilationError"))
    with pool(H200) as builds:
        builds.submit([cell])
        build = builds.result(cell)
    assert (build.outcome, build.artifact) == (None, None)


def test_on_a_cpu_triton_is_interpreted(stage, pool, triton):
    cell = triton("softmax", speaks)
    with pool(FIRST) as builds:
        builds.submit([replace(cell, gpu=GpuAxis(name="cpu", platform="cpu"))])
        assert builds.result(cell) is None


def test_kernels_differ_by_what_they_are_called_with(stage, pool, triton):
    cells = [triton("a", speaks), triton("b", speaks, dtype=Dtype.BF16)]
    with pool(H200) as builds:
        builds.submit(cells)
        keys = {builds.result(cell).seen.key for cell in cells}
    assert len(keys) == 2


def test_what_was_built_in_an_earlier_run_is_not_built_again(stage, pool):
    cell = stage.cell("one", builder=[hands_over(b"artefact")], gpu=GpuAxis(name="gpu", platform="cuda"))
    seen = []
    for gpu in (H200, H200, A100):
        with pool(gpu) as builds:
            builds.submit([cell])
            build = builds.result(cell)
            assert build.artifact.read_bytes() == b"artefact"
            seen.append((build.seen.cached, build.seen.arch, build.seen.artifact_sha256))
    digest = seen[0][2]
    assert seen == [(False, "9.0a", digest), (True, "9.0a", digest), (False, "8.0", digest)]
    assert len(stage.launched) == 2


def test_a_changed_source_is_built_whatever_its_digest_says(stage, pool):
    cell = stage.cell("one", builder=[hands_over(b"first"), hands_over(b"second")])
    for content in (b"first", b"second"):
        with pool() as builds:
            builds.submit([cell])
            assert builds.result(cell).artifact.read_bytes() == content
        cell.candidate.path.write_text("changed meanwhile\n")
