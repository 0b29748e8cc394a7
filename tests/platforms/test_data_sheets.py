"""Data sheets: every row whole, sourced and joined with the peaks; models found by name, part or glob."""

from dataclasses import replace

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.platforms.cuda.block_limits import known_limits
from kernel_matrix.platforms.data_sheets import DTYPES, FEATURES, all_sheets, sheets_of
from kernel_matrix.platforms.peaks import _table

SHEETS = {sheet.name: sheet for sheet in all_sheets()}


def names(model):
    return [sheet.name for sheet in sheets_of(model)]


def by_name(sheet):
    return sheet.name


def test_the_cards_that_people_have_are_there():
    wanted = ("T4", "V100-SXM2-16GB", "A10", "A10G", "A30", "A40", "A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB")
    wanted += ("A100 80GB PCIe", "RTX A6000", "L4", "L40", "L40S", "RTX 3090", "RTX 4090", "RTX 5090", "H200 NVL")
    wanted += (
        "RTX 6000 Ada Generation",
        "H100 PCIe",
        "H100 80GB HBM3",
        "H100 NVL",
        "H200",
        "GH200 480GB",
        "B200",
        "GB200",
    )
    assert [len(sheets_of(model)) for model in wanted] == [1] * len(wanted)


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_every_row_is_sourced_and_plausible(sheet):
    product, architecture = sheet.product, sheet.architecture
    for row in (product, architecture):
        assert len(row.source) > 10
        assert row.confidence in ("documented", "recalled")
    assert set(product.recalled) <= {"sms", "l2_bytes", "board_power_w"}
    assert all(getattr(product, name) is not None for name in product.recalled)
    assert set(product.ops_per_s) <= set(DTYPES)
    assert set(architecture.features) <= set(FEATURES)
    assert product.sms in range(16, 200)
    assert product.memory_gb in range(8, 300)
    assert product.l2_bytes is None or product.l2_bytes in range(1 << 20, 200 << 20)
    assert product.board_power_w is None or 50 < product.board_power_w <= 1200
    assert product.nvlink_bytes_per_s == 0 or 1e11 < product.nvlink_bytes_per_s < 2e12
    assert all(name == sheets_of(name)[0].name or sheet is sheets_of(name)[0] for name in product.names)


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_no_number_stands_in_two_tables(sheet):
    assert not sheet.peak or not set(sheet.peak.flops_per_s) & set(sheet.product.ops_per_s)


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_the_numbers_of_a_product_agree_with_each_other(sheet):
    """CUDA cores of all SMs at a believable clock make the FP32 rate; narrower types are faster, by whole factors."""
    rates = {dtype: rate for dtype, rate in sheet.ops_per_s.items() if rate is not None}
    if not sheet.peak:
        return
    clock_hz = rates["fp32"] / (2 * sheet.product.sms * sheet.architecture.fp32_cores_per_sm)
    assert 1.2e9 < clock_hz < 2.7e9
    for wide, narrow in (("fp16", "fp8"), ("fp8", "fp4"), ("fp16", "int8")):
        if wide in rates and narrow in rates:
            assert rates[narrow] / rates[wide] == pytest.approx(2, rel=0.03)
    for dtype in ("fp8", "fp4", "bf16", "tf32"):
        if dtype not in sheet.architecture.features:
            assert dtype not in rates


def test_every_row_of_the_peaks_has_a_sheet():
    joined = {sheet.peak.reference for sheet in all_sheets() if sheet.peak}
    assert {row.source for row in _table()} <= joined


def test_the_limits_of_a_block_are_those_that_planning_goes_by():
    limits = known_limits()
    architectures = {sheet.architecture.compute_capability: sheet.architecture for sheet in all_sheets()}
    shared = architectures.keys() & limits.keys()
    assert {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"} <= shared
    for capability in shared:
        assert architectures[capability].shared_bytes_per_block == limits[capability].shared_bytes
        assert architectures[capability].registers_per_sm == limits[capability].registers_per_block


def test_a_document_has_every_key_and_null_for_what_is_not_known():
    keys = {frozenset(sheet.document()) for sheet in all_sheets()}
    assert len(keys) == 1
    h200 = SHEETS["NVIDIA H200"].document()
    assert (h200["bytes_per_s"], h200["ops_per_s"]["bf16"], h200["ops_per_s"]["fp4"]) == (4.8e12, 989.4e12, None)
    assert h200["features"]["wgmma"] is True
    assert h200["features"]["tcgen05"] is False
    a10g = SHEETS["NVIDIA A10G"].document()
    assert (a10g["bytes_per_s"], a10g["ops_per_s"]["bf16"], a10g["ops_per_s"]["int8"]) == (0.6e12, 70e12, 140e12)
    assert (a10g["confidence"], a10g["recalled"]) == ("documented", ["l2_bytes"])
    assert SHEETS["NVIDIA GeForce RTX 5090"].document()["blocks_per_sm"] == 24
    assert SHEETS["NVIDIA GH200 480GB"].document()["board_power_w"] is None
    unmeasured = replace(SHEETS["Tesla V100-PCIE-16GB"], peak=None).document()
    assert (unmeasured["bytes_per_s"], set(unmeasured["ops_per_s"].values())) == (None, {None})


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("h200", ["NVIDIA H200"]),
        ("NVIDIA H200", ["NVIDIA H200"]),
        (" rtx   4090 ", ["NVIDIA GeForce RTX 4090"]),
        ("geforce rtx 4090", ["NVIDIA GeForce RTX 4090"]),
        ("T4", ["Tesla T4"]),
        ("nvidia t4", ["Tesla T4"]),
        ("A100-SXM4-80GB", ["NVIDIA A100-SXM4-80GB"]),
        ("l4", ["NVIDIA L4"]),
        ("l40*", ["NVIDIA L40S", "NVIDIA L40"]),
        ("*h200*", ["NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA GH200 480GB"]),
        ("h100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"]),
        ("090", ["NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"]),
    ],
)
def test_a_model_is_found(model, found):
    assert names(model) == found


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("h300", "closest: NVIDIA H200"),
        ("rtx 409o", "NVIDIA GeForce RTX 4090"),
        ("", "there is no data sheet of ''"),
        ("mi300x", "`kernel-matrix gpus show` lists all"),
        ("[", "there is no data sheet of '['"),
    ],
)
def test_an_unknown_model_is_told_the_closest(model, words):
    with pytest.raises(UsageError) as caught:
        sheets_of(model)
    assert words in str(caught.value)
