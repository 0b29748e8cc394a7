"""Every known cheat is stopped, or timed as what it truly costs; every honest control is accepted."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kernel_matrix.conformance.cheats import CLASSES, CONTROL, read_cheat
from kernel_matrix.inside import confine
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.sandboxes.process import ProcessSandbox
from kernel_matrix.sandboxes.system_call_filter import make_filter
from tests.cheats.collection import GROUPS, NOT_EXPRESSED, cheats
from tests.cheats.night import ROOT, Ended, Stand, on_gpu, spend, spend_in_service, staged, with_internals

LAUNCH = ROOT / "tests" / "sim" / "launch_preloaded.py"
LAUNCH_WITHOUT_NAMESPACES = ROOT / "tests" / "sim" / "launch_without_namespaces.py"
ALL = cheats()
ON_CPU = cheats("cpu")
ON_GPU_ONLY = [cheat for cheat in ALL if cheat.device == "cuda"]
AT_THE_BOUNDARY = [cheat for cheat in ON_CPU if cheat.boundary]
ABOUT_TIME = [
    cheat
    for cheat in ON_CPU
    if cheat.group == GROUPS["A"]
    or cheat.earns < inf
    or cheat.costs_ms
    or Status.TIMING_MISMATCH in cheat.expect
    or cheat.path.stem == "c08_steals_seed"  # reads all of /proc, and has 8 s to be loaded
]
"""Judged by their times: what a busy machine does to these could change the verdict."""

ids = {"ids": lambda cheat: cheat.candidate}


def test_every_cheat_class_has_a_cheat_or_a_reason_for_none():
    assert {cheat.kind for cheat in ALL} - {CONTROL} == set(CLASSES) - NOT_EXPRESSED.keys()


def test_each_cheat_is_in_its_class_folder_and_is_described():
    for cheat in ALL:
        letter = {folder: letter for letter, folder in GROUPS.items()}[cheat.group]
        assert cheat.kind == CONTROL or cheat.kind[0] == letter
        assert cheat.path.name.startswith(
            f"{letter.lower()}{int(cheat.kind[1:]):02}_" if cheat.kind != CONTROL else CONTROL
        )
        assert cheat.tries
    assert Counter(cheat.candidate for cheat in ALL).most_common(1)[0][1] == 1


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_group_has_an_honest_control(device):
    assert {cheat.group for cheat in cheats(device) if cheat.kind == CONTROL} == set(GROUPS.values())


@pytest.mark.parametrize("line", ["classes: A1", "class: F1", "expect: found_out", "stopped-by: luck"])
def test_a_docstring_that_says_something_else_is_refused(line, tmp_path):
    told = {"class": "A1", "problem": "relu"} | dict([line.split(": ")])
    path = tmp_path / "a01_tries.py"
    path.write_text('"""Tries.\n\n' + "".join(f"{key}: {value}\n" for key, value in told.items()) + '"""\n')
    with pytest.raises(ValueError, match=line.split(": ")[line.startswith("expect")]):
        read_cheat(path)


def test_each_cheat_is_placed_as_one_file_of_its_own(tmp_path):
    with staged(ALL, Stand(sandbox="process")) as folder:
        placed = {f"{file.parent.name}/{file.stem}": file.read_text() for file in folder.glob("candidates/*/*.py")}
    assert placed.keys() == {cheat.candidate for cheat in ALL}
    assert not [name for name, source in placed.items() if "tests.cheats" in source.replace("tests.cheats.night", "")]
    assert sum("def lent_outputs" in source for source in placed.values()) > 20
    compile(with_internals("from tests.cheats.worker_internals import (\n    LEARNT_CALLS,\n)\n"), "cheat", "exec")


NIGHT_S = 1500  # the first test that needs a night waits for all of it

needs_night = pytest.mark.timeout(NIGHT_S)


def spend_here(cheats):
    """Run them by the process sandbox."""
    if ProcessSandbox().confinement.namespaces == confine.NONE:
        pytest.skip("this machine gives processes no namespaces of their own: cheats need the docker sandbox")
    return spend(cheats, Stand(sandbox="process", program=(str(LAUNCH),)))


@pytest.fixture(scope="module")
def quiet_night():
    return spend_here(ABOUT_TIME)


@pytest.fixture(scope="module")
def busy_night():
    return spend_here([cheat for cheat in ON_CPU if cheat not in ABOUT_TIME])


@pytest.fixture(scope="module")
def ended(quiet_night, busy_night):
    """Candidate → how it ended, of all that run on a CPU."""
    return {**quiet_night.ended, **busy_night.ended}


@needs_night
@pytest.mark.torch
@pytest.mark.alone  # they are run for this test, and a busy machine hides lies about time
def test_the_run_is_no_worse_for_those_about_time(quiet_night):
    assert (quiet_night.code, quiet_night.stderr, quiet_night.leftovers) == (0, "", [])


@needs_night
@pytest.mark.torch
def test_the_run_is_no_worse_for_the_others(busy_night, ended):
    assert (busy_night.code, busy_night.stderr, busy_night.leftovers) == (0, "", [])
    assert ended.keys() == {cheat.candidate for cheat in ON_CPU}


@needs_night
@pytest.mark.torch
@pytest.mark.parametrize("cheat", ON_CPU, **ids)
def test_it_does_not_pay(cheat, ended):
    assert ended[cheat.candidate].wrong() == ""


@needs_night
@pytest.mark.torch
@pytest.mark.parametrize("cheat", [cheat for cheat in ON_CPU if cheat.finding], **ids)
def test_its_source_gives_it_away(cheat, ended):
    assert ended[cheat.candidate].unread() == ""


@needs_night
@pytest.mark.torch
def test_one_that_paid_would_be_told(ended):
    honest = ended["relu/control_prints"]
    caught = ended["relu/b09_one_element"]
    expects = frozenset({Status.INCORRECT_VALUES})
    assert "passed where incorrect_values" in Ended(replace(honest.cheat, expect=expects), honest.record).wrong()
    assert "it costs 60000 ms" in Ended(replace(honest.cheat, costs_ms=60_000), honest.record).wrong()
    slow = ended["relu/a12_works_on_the_host"]
    assert slow.faster_by == 0.0
    assert "0.00× faster, and it earns -1× at most" in Ended(replace(slow.cheat, earns=-1.0), slow.record).wrong()
    assert "on 0 samples" in Ended(honest.cheat, {**honest.record, "sessions": ()}).wrong()
    excused = {**caught.record["outcome"], "fault": Fault.INFRA.value}
    assert "fault of infra" in Ended(caught.cheat, {**caught.record, "outcome": excused}).wrong()
    silent = {**caught.record["outcome"], "evidence": {**caught.record["outcome"]["evidence"], "message": ""}}
    assert "no evidence" in Ended(caught.cheat, {**caught.record, "outcome": silent}).wrong()
    assert "no finding memo" in Ended(replace(honest.cheat, finding="memo"), honest.record).unread()


@pytest.mark.torch
@pytest.mark.skipif(
    not (confine.landlock_version() and make_filter()), reason="this kernel has no Landlock, or no filter"
)
def test_no_daemon_is_reached_without_namespaces():
    (cheat,) = [cheat for cheat in ON_CPU if cheat.path.stem == "d12_asks_a_daemon"]
    with TemporaryDirectory(dir="/var/tmp") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        daemon.bind(f"{folder}/daemon")
        for path, mode in ((folder, 0o755), (f"{folder}/daemon", 0o777)):
            Path(path).chmod(mode)
        daemon.listen()
        night = spend([cheat], Stand(sandbox="process", program=(str(LAUNCH_WITHOUT_NAMESPACES),)))
    assert night.ended[cheat.candidate].wrong() == ""


IN_A_SERVICE = ("a05_*", "b09_*", "b14_*", "c03_*", "d15_*", "control_p*")
"""Some of each group; benchmarks/cheats.py --service sends all of them."""


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_none_pays_in_a_service():
    chosen = [cheat for cheat in ON_CPU if any(cheat.path.match(f"{glob}.py") for glob in IN_A_SERVICE)]
    assert {cheat.group for cheat in chosen} == set(GROUPS.values()) - {"ranks"}
    night = spend_in_service(chosen, Stand(sandbox="process", program=(str(LAUNCH),)))
    assert {name: ended.wrong() for name, ended in night.ended.items() if ended.wrong()} == {}
    assert (night.code, night.stderr, night.leftovers) == (0, "stopped by SIGTERM\n", [])


@pytest.fixture(scope="module")
def docker_night(cpu_lock):
    """Those that isolation alone stops, in containers."""
    return spend(AT_THE_BOUNDARY, Stand(sandbox="docker", lock=cpu_lock))


@pytest.mark.docker
@pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first
@pytest.mark.parametrize("cheat", AT_THE_BOUNDARY, **ids)
def test_it_does_not_get_out_of_a_container(cheat, docker_night):
    assert docker_night.ended[cheat.candidate].wrong() == ""


@pytest.fixture(scope="module")
def gpu_night():
    """Those that a CPU cannot show; benchmarks/cheats.py runs all of them."""
    return spend(ON_GPU_ONLY, on_gpu("process"))


@pytest.mark.torch
@pytest.mark.gpu
@pytest.mark.timeout(1800)  # CUDA candidates are compiled
@pytest.mark.parametrize("cheat", ON_GPU_ONLY, **ids)
def test_it_does_not_pay_on_a_gpu(cheat, gpu_night):
    ended = gpu_night.ended[cheat.candidate]
    assert (ended.wrong(), ended.unread()) == ("", "")
