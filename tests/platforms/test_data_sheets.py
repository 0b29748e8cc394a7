"""Data sheets: every row whole, sourced and joined with the peaks; models found by name, part or glob."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.platforms.cuda.block_limits import known_limits
from kernel_matrix.platforms.data_sheets import DTYPES, FEATURES, VENDORS, all_sheets, names_gpu, sheets_of
from kernel_matrix.platforms.peaks import _table, peak_in_table

SHEETS = {sheet.name: sheet for sheet in all_sheets()}
ADDRESS = re.compile(r"https://[a-z0-9.-]+/[^\s;,()]*(?=[;,]|$)")

FP16_PER_CLOCK = {
    "7.0": 1024, "7.5": 1024, "8.0": 2048, "8.6": 1024, "8.9": 1024, "9.0": 4096, "10.0": 8192, "10.3": 8192,
    "12.0": 1024, "gfx90a": 1024, "gfx942": 2048, "gfx950": 4096,
}  # fmt: skip
"""Compute capability → dense fp16 operations of the tensor cores of an SM per clock, by the white papers."""


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
    wanted += ("B300 SXM6 AC", "GB300", "GH200 144G HBM3e", "H800", "H800 PCIe", "H20", "L20", "A2", "A16")
    wanted += ("A800-SXM4-80GB", "A800 80GB PCIe", "TITAN V", "TITAN RTX", "Quadro RTX 8000", "RTX A5000", "RTX A4000")
    wanted += ("RTX 5080", "RTX 5070 Ti", "RTX 4080 SUPER", "RTX 4060", "RTX 3080", "RTX 3060", "RTX 2080 Ti")
    wanted += ("RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 Blackwell Server Edition")
    wanted += ("MI250X", "MI300A", "MI300X", "MI325X", "MI350X", "MI355X")
    assert [len(sheets_of(model)) for model in wanted] == [1] * len(wanted)


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_every_row_is_sourced_and_plausible(sheet):
    product, architecture = sheet.product, sheet.architecture
    for row in (product, architecture):
        assert len(row.source) > 10
        assert row.confidence in ("documented", "recalled")
    assert ADDRESS.search(product.source)
    assert product.source.count("https://") == len(ADDRESS.findall(product.source))
    assert all(source.count("(") == source.count(")") for source in sheet.sources)
    assert set(product.recalled) <= {"sms", "l2_bytes", "board_power_w"}
    assert all(getattr(product, name) is not None for name in product.recalled)
    assert set(product.ops_per_s) <= set(DTYPES)
    assert set(architecture.features) <= set(FEATURES)
    assert set(architecture.features) <= set(VENDORS[architecture.vendor].features) <= set(FEATURES)
    assert product.sms is None or product.sms in range(10, 310)
    assert product.memory_gb is None or product.memory_gb in range(6, 300)
    assert product.l2_bytes is None or product.l2_bytes in range(1 << 20, 200 << 20)
    assert product.l3_bytes is None or product.l3_bytes > product.l2_bytes
    assert product.board_power_w is None or 50 < product.board_power_w <= 1400
    assert product.nvlink_bytes_per_s in (None, 0) or 5e10 <= product.nvlink_bytes_per_s < 2e12
    assert all(name == sheets_of(name)[0].name or sheet is sheets_of(name)[0] for name in product.names)


def test_a_name_is_of_one_product():
    names = Counter(name for sheet in all_sheets() for name in sheet.product.names)
    assert {name for name, count in names.items() if count > 1} == set()


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_all_names_of_a_product_have_its_peak(sheet):
    assert {peak_in_table(name) and peak_in_table(name).reference for name in sheet.product.names} == {
        sheet.peak and sheet.peak.reference
    }


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_no_number_stands_in_two_tables(sheet):
    assert not sheet.peak or not set(sheet.peak.flops_per_s) & set(sheet.product.ops_per_s)
    assert not sheet.peak or sheet.product.bytes_per_s is None


@pytest.mark.parametrize("sheet", all_sheets(), ids=by_name)
def test_the_numbers_of_a_product_agree_with_each_other(sheet):
    """CUDA cores of all SMs at a believable clock make the FP32 rate; narrower types are faster, by whole factors."""
    rates = {dtype: rate for dtype, rate in sheet.ops_per_s.items() if rate is not None}
    capability = sheet.product.compute_capability
    if sheet.product.sms and "fp32" in rates:
        clock_hz = rates["fp32"] / (2 * sheet.product.sms * sheet.architecture.fp32_cores_per_sm)
        assert 1.15e9 < clock_hz < 2.7e9
        assert rates["fp16"] <= 1.02 * sheet.product.sms * FP16_PER_CLOCK[capability] * clock_hz
    factors = {("fp16", "fp8"): 2, ("fp8", "fp4"): 2, ("fp16", "int8"): 2}
    if capability == "10.3":  # more fp4 and hardly any int8
        factors = {("fp16", "fp8"): 2, ("fp8", "fp4"): 3, ("fp16", "int8"): 1 / 15}
    elif capability == "gfx90a":
        factors = {("fp16", "int8"): 1}
    for (wide, narrow), factor in factors.items():
        if wide in rates and narrow in rates:
            assert rates[narrow] / rates[wide] == pytest.approx(factor, rel=0.04)
    assert rates.get("bf16", 0) <= rates.get("fp16", 0)
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
    assert {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0"} <= shared
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
    mi300x = SHEETS["AMD Instinct MI300X"].document()
    assert (mi300x["vendor"], mi300x["compute_capability"], mi300x["threads_per_warp"]) == ("AMD", "gfx942", 64)
    assert (mi300x["l3_bytes"], mi300x["mig"], mi300x["features"]["wgmma"]) == (256 << 20, None, False)
    maxq = SHEETS["NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"]
    assert (maxq.peak, maxq.bytes_per_s, maxq.ops_per_s["fp32"]) == (None, 1.792e12, 110e12)
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
        ("*h200*", ["NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e"]),
        ("h100", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"]),
        ("rtx 3080", ["NVIDIA GeForce RTX 3080"]),
        ("rtx 3090*", ["NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 3090"]),
        ("mi300", ["AMD Instinct MI300X", "AMD Instinct MI300A"]),
        ("instinct mi300x", ["AMD Instinct MI300X"]),
        ("090", [f"NVIDIA GeForce RTX {model}" for model in ("5090", "4090", "3090 Ti", "3090")]),
    ],
)
def test_a_model_is_found(model, found):
    assert names(model) == found


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("h300", "closest: NVIDIA H"),
        ("rtx 409o", "NVIDIA GeForce RTX 4090"),
        ("", "there is no data sheet of ''"),
        ("mi400x", "`kernel-matrix gpus show` lists all"),
        ("[", "there is no data sheet of '['"),
    ],
)
def test_an_unknown_model_is_told_the_closest(model, words):
    with pytest.raises(UsageError) as caught:
        sheets_of(model)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((name, True) for name in ("L4", "t4_modal", "A100-80GB_modal", "H100_PCIe_LambdaLabs", "v100s", "cpu")),
        *(
            (name, True)
            for name in ("NVIDIA GeForce RTX 4090", "rtx-4090", "rtx4080", "titan_v", "h20", "B300", "gb10", "mi300x")
        ),
        *((name, False) for name in ("old", "golden_results", "results", "timing", "data", "", "v0.1", "run12", "b16")),
        *(
            (name, False)
            for name in ("2024-05-12", "level1", "pcie", "80gb", "Ada Generation", "l400x00", "sizes_4000", "v")
        ),
    ],
)
def test_gpu_is_told_from_other_names_by_its_model_number(text, expected):
    assert names_gpu(text) is expected


def test_every_data_sheet_is_named_by_each_of_its_names():
    assert all(names_gpu(name) for sheet in all_sheets() for name in sheet.product.names)
