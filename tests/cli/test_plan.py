from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from sim.nvml import H200

from tests.cli.terminal import piped

ROOT = Path(__file__).parents[2]

MATRIX = f"""\
name = "small"
dtypes = ["fp32", "fp16"]

[[gpus]]
name = "cpu"
vendor = "cpu"
[[gpus]]
name = "b200"
model = "No such GPU"
compute_capability = "10.0"

[[toolchains]]
name = "cpu"
torch = "1.0.0"  # never what is installed: whether a cell runs must not depend on the machine
triton = "1.0.0"
[[toolchains]]
name = "cu124"
cuda = "12.4"
torch = "2.6.0"
triton = "3.2.0"

[[problems]]
source = "folder"
path = "{ROOT / "problems"}"
select = ["relu", "softmax"]

[[candidates]]
select = "*/@reference"

[[exclude]]
gpu = "cpu"
dtype = "fp16"
reason = "half precision [on a CPU] is slow"
"""


@pytest.fixture
def plan(tmp_path):
    """Runs the verb in a process of its own."""
    (tmp_path / "matrix.toml").write_text(MATRIX)
    return partial(piped, tmp_path, "plan")


def test_the_overview_has_totals_reasons_and_a_last_sentence(plan):
    ran = plan()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[-1].startswith("small: 8 cells, ")
    words = " ".join(ran.stdout.split())
    assert "excluded because half precision [on a CPU] is slow" in words
    assert "gpu b200 4 0 0 s no_code_for_gpu 4" in words
    assert "category" in words
    assert "no PTX that compute capability 10.0 could use" in words


def test_all_lists_every_cell(plan):
    lines = plan("--all").stdout.splitlines()[:8]
    assert all(len(line.split()[0]) == 32 for line in lines)
    assert lines[2].split("  ")[1:] == [
        "cpu cpu fp16 relu/@reference",
        "excluded: excluded because half precision [on a CPU] is slow",
    ]


def test_json_has_every_cell_and_the_totals(plan):
    document = json.loads(plan("--json").stdout)
    assert len(document["cells"]) == document["totals"]["all"]["cells"] == 8
    cell = document["cells"][2]
    assert cell["reason"] == {"kind": "excluded", "text": "excluded because half precision [on a CPU] is slow"}
    assert (cell["gpu"], cell["dtype"], cell["candidate"], cell["language"]) == (
        "cpu",
        "fp16",
        "relu/@reference",
        "torch",
    )
    assert document["totals"]["axes"]["gpu"]["b200"]["reasons"] == {"no_code_for_gpu": 4}
    assert document["totals"]["reasons"][0]["cells"] == 4
    assert (document["matrix"], document["schema_version"]) == ("small", 1)


def test_json_is_the_same_each_time(plan):
    assert plan("--json").stdout == plan("--json").stdout


def test_filters_narrow_cells_and_totals(plan):
    document = json.loads(plan("--json", "--filter", "gpu=cpu", "--filter", "problem!=softmax").stdout)
    assert {(cell["gpu"], cell["problem"]) for cell in document["cells"]} == {("cpu", "relu")}
    assert document["totals"]["all"]["cells"] == 2


def test_another_file_can_be_named(plan, tmp_path):
    (tmp_path / "other.toml").write_text(MATRIX.replace('"small"', '"other"'))
    assert plan("other.toml").stdout.splitlines()[-1].startswith("other: 8 cells")


@pytest.mark.parametrize("flags", [[], ["--json"], ["--all"]])
def test_nothing_selected_is_exit_3_and_prints_no_half_document(plan, flags):
    ran = plan("--filter", "gpu=h300", *flags)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "no cell of matrix.toml passes --filter gpu=h300" in ran.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--filter", "gqu=x"], "did you mean 'gpu'?"),
        (["--filter", "gpu"], "is not KEY=GLOB"),
        (["absent.toml"], "absent.toml"),
    ],
)
def test_what_cannot_be_understood_is_exit_2(plan, args, words):
    ran = plan(*args)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert words in ran.stderr


def test_a_faulty_selection_names_the_line(plan, tmp_path):
    faulty = MATRIX.replace('"relu", ', '"rleu", ')
    (tmp_path / "matrix.toml").write_text(faulty)
    line = next(n for n, text in enumerate(faulty.splitlines(), start=1) if "rleu" in text)
    ran = plan()
    assert ran.returncode == 2
    assert f"matrix.toml:{line}:" in ran.stderr
    assert "did you mean 'relu'?" in ran.stderr


def test_plan_former_name_of_sandbox_works_and_is_in_no_help(plan):
    former, present = (plan(option, "process", "--all") for option in ("--engine", "--sandbox"))
    assert (former.returncode, former.stdout, former.stderr) == (present.returncode, present.stdout, present.stderr)
    assert plan("--sandbox", "nonesuch").returncode == plan("--engine=nonesuch").returncode == 2
    assert "engine" not in plan("--help").stdout


def test_matrix_is_read_from_standard_input(plan, tmp_path):
    from_file = plan("--json")
    text = (tmp_path / "matrix.toml").read_text()
    (tmp_path / "matrix.toml").unlink()
    from_input = plan("-", "--json", stdin=text)
    assert (from_input.returncode, from_input.stdout) == (0, from_file.stdout)
    faulty = plan("-", stdin=text.replace('"relu", ', '"rleu", '))
    assert (faulty.returncode, "did you mean 'relu'?" in faulty.stderr) == (2, True)


def test_table_options_list_cells(plan):
    lines = plan("--columns", "gpu,dtype,candidate", "--sort", "-gpu,dtype", "--limit", "2").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["gpu", "dtype", "candidate"],
        ["cpu", "fp16", "relu/@reference"],
        ["cpu", "fp16", "softmax/@reference"],
    ]
    assert plan("--csv").stdout.splitlines()[0] == "gpu,toolchain,dtype,candidate,expected_s,reason"


def test_value_that_no_cell_has_is_told_the_closest(plan):
    ran = plan("--filter", "problem=ReLU")
    assert (ran.returncode, "no problem is 'ReLU'; did you mean 'relu'?" in ran.stderr) == (3, True)


def test_link_of_several_ranks_is_shown_with_the_gpu(tmp_path, driver):
    driver.set(H200, {**H200, "uuid": "another"})
    gpus = MATRIX.replace('model = "No such GPU"\ncompute_capability = "10.0"', 'model = "NVIDIA H200"')
    (tmp_path / "matrix.toml").write_text(gpus.replace('["relu", "softmax"]', '["relu", "all_reduce"]'))

    def ran(*args):
        done = piped(tmp_path, "plan", "--sandbox", "process", "--filter", "gpu=b200", *args, **driver.environment)
        done.check_returncode()
        return done.stdout

    links = {cell["problem"]: cell["link"] for cell in json.loads(ran("--json"))["cells"]}
    assert links == {"relu": None, "all_reduce": "pcie"}
    assert "b200 (pcie) cu124 fp32 all_reduce/@reference" in ran("--all")
