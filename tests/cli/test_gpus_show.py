"""``kernel-matrix gpus show``, run as a person runs it."""

import json

import pytest

from tests.cli.test_problems import kernel_matrix


def show(*arguments):
    return kernel_matrix("gpus", "show", *arguments)


def test_without_a_model_a_table_of_all():
    done = show()
    assert (done.returncode, done.stderr) == (0, "")
    heading, *rows, legend = done.stdout.splitlines()
    assert heading.split()[:4] == ["GPU", "architecture", "compute", "SMs"]
    assert len(rows) >= 18
    (h200,) = (row.split() for row in rows if row.startswith("NVIDIA H200  "))
    assert h200[2:10] == ["Hopper", "9.0", "132", "141", "GB", "HBM3e", "4.8", "TB/s"]
    assert "TFLOP/s" in legend


def test_a_sheet_says_what_is_unknown_and_where_it_is_from():
    said = show("a10g").stdout
    for words in ("NVIDIA A10G", "bandwidth 600 GB/s", "fp64 unknown", "recalled", "CUDA C++ Programming Guide"):
        assert words in said


def test_a_prompt_is_plain_text_of_few_lines():
    done = show("H200", "--prompt")
    lines = done.stdout.splitlines()
    assert lines[0] == "NVIDIA H200: NVIDIA Hopper, compute capability 9.0"
    assert len(lines) == 16
    assert "- per block: at most 1024 threads, 227 KiB shared memory (48 KiB without opting in)" in lines
    assert "- balance: in bf16, memory limits what does less than 206 FLOP per byte" in lines
    assert all(line == line.rstrip() and len(line) < 200 for line in lines)
    assert "- has not: fp4, tcgen05 (sm_100a, sm_103a)" in lines


def test_a_prompt_is_in_the_words_of_the_vendor():
    lines = show("mi300x", "--prompt").stdout.splitlines()
    assert lines[0] == "AMD Instinct MI300X: AMD CDNA3, target gfx942"
    assert "- CUs: 304" in lines
    assert "- resident per CU: at most 2048 threads (32 wavefronts of 64); blocks at most: unknown" in lines
    assert "- per block: at most 1024 threads, 64 KiB LDS" in lines
    assert "- L3 cache: 256 MiB" in lines
    assert not [line for line in lines if line.startswith(("- NVLink", "- MIG", "- SM", "- tensor cores"))]


def test_several_prompts_are_apart():
    blocks = show("h100", "--prompt").stdout.strip().split("\n\n")
    assert [block.split(":")[0] for block in blocks] == ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"]


@pytest.mark.parametrize(("model", "count"), [(["b200"], 1), (["a100"], 4), ([], 99)])
def test_json_is_one_document(model, count):
    document = json.loads(show(*model, "--json").stdout)
    assert len(document["gpus"]) == count
    assert all(sheet["sources"] for sheet in document["gpus"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("rtx409",), "closest: NVIDIA GeForce RTX 4090"), (("h200", "--json", "--prompt"), "give one of them")],
)
def test_a_wrong_question_is_answered_with_what_is_right(arguments, words):
    done = show(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
