from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_matrix.matrix.semantics import resolve


def test_repeated_names_are_told_where_the_second_is(faults):
    gpu = "[[gpus]]\nname = 'cpu'\nuuid = 'GPU-1'\n"
    toolchain = "[[toolchains]]\nname = 'cu128'\ntorch = '2.8.0'\ntriton = '3.4.0'\n"
    assert faults(gpu + toolchain) == [
        "matrix.toml:21:1 gpus[2].name: 'cpu' is also the name of gpus[0]; rename one",
        "matrix.toml:24:1 toolchains[1].name: 'cu128' is also the name of toolchains[0]; rename one",
    ]  # fmt: skip


def test_two_names_for_the_same_devices(faults):
    assert faults("[[gpus]]\nmodel = 'NVIDIA H200*'\nname = 'other'\n") == [
        "matrix.toml:20:1 gpus[2]: repeats gpus[1]; remove one"
    ]


@pytest.mark.parametrize(
    "table", ["[[problems]]\npath = 'problems'\nsource = 'folder'\n", "[[candidates]]\n[[candidates]]\n"]
)
def test_repeated_selections(faults, table):
    (fault,) = faults(table)
    assert "repeats" in fault


def test_a_cpu_has_no_conditions(faults, minimal):
    (fault,) = faults(base=minimal.replace('vendor = "cpu"', 'vendor = "cpu"\nmodel = "AMD*"'))
    assert fault == "matrix.toml:7:1 gpus[0].model: a CPU has no such condition; take it out"


@pytest.mark.parametrize(
    ("platform", "link", "fault"),
    [
        ("cuda", "nvlinks", "'nvlinks' is not known; allowed: nvswitch, nvlink, pcie, host; did you mean 'nvlink'?"),
        ("rocm", "nvlink", "allowed: xgmi, pcie, host"),
        ("cpu", "pcie", "a CPU has no such condition"),
    ],
)
def test_link_is_a_kind_of_its_platform(faults, platform, link, fault):
    (found,) = faults(f"[[gpus]]\nname = 'linked'\nplatform = '{platform}'\nlink = '{link}'\n")
    assert found.startswith("matrix.toml:23:1 gpus[2].link: ")
    assert fault in found


def test_an_image_has_one_toolkit(faults, minimal):
    (fault,) = faults(base=minimal.replace('torch = "2.9.0"\n', 'torch = "2.9.0"\nrocm = "7.2"\n'))
    assert fault.endswith("toolchains[0].rocm: an image has one toolkit, and another is given; take one out")


def test_a_path_that_does_not_exist_names_its_closest_neighbour(faults):
    assert faults("[[candidates]]\npath = './problms'\n") == [
        "matrix.toml:21:1 candidates[0].path: './problms' does not exist; looked for problms; did you mean 'problems'?"
    ]


def test_a_path_whose_parent_does_not_exist(faults):
    (fault,) = faults("[[candidates]]\npath = 'a/b/c'\n")
    assert fault.endswith("candidates[0].path: 'a/b/c' does not exist; looked for a/b/c")


def test_a_file_is_not_a_folder(faults):
    (fault,) = faults("[[candidates]]\npath = 'matrix.toml'\n")
    assert fault.endswith("candidates[0].path: 'matrix.toml' is not a folder; looked at matrix.toml")


def test_a_path_the_system_refuses(faults):
    (fault,) = faults(f"[[candidates]]\npath = '{'x' * 300}'\n")
    assert fault.endswith("cannot be read: File name too long")


def test_paths_start_from_the_file_or_from_home(monkeypatch):
    monkeypatch.setitem(os.environ, "HOME", "/home/me")
    assert resolve(Path("/a/b"), "../c") == Path("/a/c")
    assert resolve(Path("/a/b"), "/c") == Path("/c")
    assert resolve(Path("/a/b"), "~/c") == Path("/home/me/c")
    assert resolve(Path("/a/b"), "~nobody-of-this-name/c") == Path("/a/b/~nobody-of-this-name/c")


def test_an_override_must_change_something(faults):
    assert faults("[[override]]\nmatch.gpu = 'cpu'\npolicy = {}\n") == [
        "matrix.toml:20:1 override[0]: changes nothing; give it protocol, policy or workloads"
    ]


def test_build_workers_are_for_the_whole_run(faults):
    (fault,) = faults("[[override]]\nmatch.gpu = 'cpu'\npolicy.build_workers = 2\n")
    assert fault.startswith("matrix.toml:22:1 override[0].policy.build_workers: applies to the whole run")


TOO_FEW = "is too few for tier 'publish'; must be at least 5, or use tier 'screen'"


def test_publish_takes_five_sessions(faults, load):
    (fault,) = faults("[protocol]\nsessions = 4\ntier = 'publish'\n")
    assert fault == f"matrix.toml:21:1 protocol.sessions: 4 {TOO_FEW}"
    assert load("[protocol]\nsessions = 6\ntier = 'publish'\n").protocol.sessions == 6


def test_fewest_samples_above_most(faults):
    (fault,) = faults("[protocol]\nmin_samples = 500\n")
    assert fault == "matrix.toml:21:1 protocol.min_samples: 500 is more than max_samples, which is 400"


def test_an_override_is_checked_together_with_what_it_changes(faults):
    (fault,) = faults("[protocol]\ntier = 'publish'\n[[override]]\nmatch.gpu = 'cpu'\nprotocol.sessions = 1\n")
    assert fault == f"matrix.toml:24:1 override[0].protocol.sessions: 1 {TOO_FEW}"


TWO_OVERRIDES = """
[[override]]
match.gpu = "{one}"
protocol.tier = "publish"
[[override]]
match.gpu = "{other}"
match.problem = "sum"
protocol.sessions = 2
"""


def test_two_overrides_of_one_cell_are_checked_together(faults):
    for one, other in (("h200", "h200"), ("h*", "h200"), ("*", "cpu")):
        (fault,) = faults(TWO_OVERRIDES.format(one=one, other=other))
        assert (
            fault == f"matrix.toml:27:1 override[1].protocol.sessions: 2 {TOO_FEW} (override[0] matches the same cells)"
        )


def test_two_overrides_of_different_cells_are_not(load):
    assert len(load(TWO_OVERRIDES.format(one="h200", other="cpu")).overrides) == 2


def test_a_fault_is_told_once_however_many_overrides_meet_it(faults):
    override = "[[override]]\nmatch.gpu = '{}'\nprotocol.budget_s = {}\n"
    (fault,) = faults("[protocol]\nmin_samples = 500\n" + override.format("cpu", 1) + override.format("*", 2))
    assert " protocol.min_samples: " in fault
    faulty = "[[override]]\nmatch.gpu = 'cpu'\nprotocol.min_samples = 500\n"
    (fault,) = faults(override.format("cpu", 1) + faulty + override.format("*", 2))
    assert " override[1].protocol.min_samples: " in fault


def test_malformed_tables_are_not_compared(faults):
    (fault,) = faults("[[gpus]]\nname = 'x'\nmodle = 'L4'\n[[gpus]]\nname = 'any'\n")
    assert "gpus[2].modle: unknown key" in fault
