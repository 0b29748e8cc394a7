"""Rates of boards, and reasons where there are none."""

import pytest

from kernel_matrix.analysis.gpu_predictions import board_rates, boards_of
from tests.analysis.made import cell, cells


def test_board_rates_are_those_of_the_data_sheet():
    rates = board_rates("mine", ["NVIDIA H200"])
    assert (rates.bytes_per_s, rates.ops_per_s["fp16"], rates.reason) == (4.8e12, 989.4e12, "")


def test_board_rates_without_board_use_an_unambiguous_name():
    assert board_rates("H100 PCIe", []).bytes_per_s == pytest.approx(2.039e12)


@pytest.mark.parametrize(
    ("gpu", "boards", "said"),
    [
        ("x", ["Accelerator 9000"], "there is no data sheet of Accelerator 9000"),
        (
            "a10",
            ["NVIDIA A10", "NVIDIA A10G"],
            "a10 was measured on boards with different rates: NVIDIA A10, NVIDIA A10G",
        ),
        ("h100", [], "the results do not name the board of h100, which may be"),
        ("machine7", [], "the results do not name the board of machine7"),
    ],
)
def test_board_rates_unknown_say_why(gpu, boards, said):
    rates = board_rates(gpu, boards)
    assert (rates.bytes_per_s, dict(rates.ops_per_s)) == (None, {})
    assert rates.reason.startswith(said)


def test_boards_of_lists_each_board_once():
    made = cells([cell(gpu="a", gpu_name="B2"), cell(gpu="a", gpu_name="B1"), cell(gpu="b", gpu_name=None)])
    assert boards_of(made) == {"a": ["B1", "B2"]}
