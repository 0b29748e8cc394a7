from __future__ import annotations

import pytest

UNKNOWN = {
    "gpu": ("gpu = 'h20'", "'h20' matches no gpu; there are: cpu, h200; did you mean 'h200'?"),
    "toolchain": ("toolchain = 'cu129'", "'cu129' matches no toolchain; there are: cu128; did you mean 'cu128'?"),
    "dtype": ("dtype = 'fp16'", "'fp16' matches no dtype; there are: fp32, bf16; did you mean 'bf16'?"),
    "language": (
        "language = 'tritn'",
        "'tritn' matches no language; there are: triton, cuda, torch, cute_dsl, tilelang, hip; did you mean",
    ),
    "glob": ("gpu = 'x*'", "'x*' matches no gpu; there are: cpu, h200"),
}


@pytest.mark.parametrize(("match", "expected"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_exclude_names_values_that_exist(faults, match, expected):
    (fault,) = faults(f"[[exclude]]\nreason = 'x'\n{match}\n")
    key = match.split()[0]
    assert fault.split(": ", 1)[0] == f"matrix.toml:22:1 exclude[0].{key}"
    assert fault.split(": ", 1)[1].startswith(expected.split("; did")[0])
    assert ("did you mean" in fault) is ("did you mean" in expected)


def test_an_override_and_an_include_name_values_that_exist(faults):
    found = faults("""
        [[override]]
        match = { gpu = ["cpu", "h20"] }
        workloads = "smoke"
        [[include]]
        toolchain = "cu12"
        dtypes = ["fp16"]
        reason = "x"
        """)
    assert [line.split(": ")[0] for line in found] == [
        "matrix.toml:22:25 override[0].match.gpu[1]",
        "matrix.toml:25:1 include[0].toolchain",
    ]


def test_a_dtype_that_only_an_include_brings_may_be_named(load):
    load("""
        [[include]]
        problem = "sum"
        dtypes = ["fp64"]
        reason = "x"
        [[override]]
        match.dtype = "fp64"
        workloads = "smoke"
        """)


@pytest.mark.parametrize(
    "match",
    [
        "",
        "gpu = '*'",
        "gpu = ['cpu', 'h*']",
        "dtype = ['fp32', 'bf16']",
        "problem = '*'\ncandidate = ['x', '*']",
        "language = '*'",
    ],
)
def test_an_exclude_of_everything_is_refused(faults, match):
    (fault,) = faults(f"[[exclude]]\nreason = 'x'\n{match}\n")
    assert fault.startswith("matrix.toml:20:1 exclude[0]: excludes every cell; narrow it with gpu, toolchain,")


@pytest.mark.parametrize(
    "match", ["gpu = 'cpu'", "problem = 's*'", "language = 'cuda'", "toolchain='*'\ncategory = 'sum'"]
)
def test_an_exclude_of_something_is_not(load, match):
    assert len(load(f"[[exclude]]\nreason = 'x'\n{match}\n").exclude) == 1


PAIR = """
[[exclude]]
{exclude}
reason = "slow"
[[include]]
{include}
reason = "wanted"
"""


@pytest.mark.parametrize(
    ("exclude", "include"),
    [
        ("gpu='cpu'\ndtype='bf16'", "gpu='cpu'\ndtypes=['bf16']"),
        ("gpu='cpu'\ndtype='b*'\nproblem='softmax'", "gpu='*'\ndtypes=['fp32', 'bf16']"),
        ("gpu='cpu'\nproblem='soft*'", "problem=['x', 's*']\ndtypes=['bf16', 'fp32']"),
        ("candidate='sum/a'", "candidate='sum/*'\ndtypes=['bf16', 'fp32']"),
    ],
)
def test_an_exclude_within_an_include_contradicts_it(faults, exclude, include):
    (fault,) = faults(PAIR.format(exclude=exclude, include=include))
    assert fault == (
        "matrix.toml:21:1 exclude[0]: contradicts include[0], which runs every cell that this rule excludes; remove one"
    )


@pytest.mark.parametrize(
    ("exclude", "include"),
    [
        ("gpu='cpu'\ndtype='bf16'", "gpu='cpu'\nproblem='sum'\ndtypes=['bf16']"),
        ("gpu='cpu'", "gpu='cpu'\ndtypes=['bf16']"),
        ("gpu='cpu'\nproblem='s*'", "gpu='cpu'\nproblem='softmax'\ndtypes=['bf16', 'fp32']"),
        ("gpu='*'\nlanguage='cuda'", "gpu='h200'\ndtypes=['bf16', 'fp32']"),
    ],
)
def test_exclude_wider_than_include_is_accepted(load, exclude, include):
    matrix = load(PAIR.format(exclude=exclude, include=include))
    assert (len(matrix.exclude), len(matrix.include)) == (1, 1)


@pytest.mark.parametrize(
    "rule",
    [
        "[[exclude]]\ngpu = {}\nreason = '{}'\n",
        "[[include]]\ngpu = {}\ndtypes = ['fp64']\nreason = '{}'\n",
        "[[override]]\nmatch.gpu = {}\nworkloads = 'smoke'\n",
    ],
    ids=["exclude", "include", "override"],
)
def test_repeated_rule_with_other_reason_or_order_is_refused(faults, rule):
    (fault,) = faults(rule.format("['cpu', 'cpu*']", "one") + rule.format("['cpu*', 'cpu']", "two"))
    assert "[1]: repeats " in fault


def test_overrides_that_differ_in_what_they_set_are_two(load):
    rule = "[[override]]\nmatch.gpu = 'cpu'\nworkloads = '{}'\n"
    assert len(load(rule.format("smoke") + rule.format("default")).overrides) == 2


def test_an_unknown_axis_is_not_held_against_the_rules(faults):
    (fault,) = faults("[[toolchains]]\nname = 'cu130'\n[[exclude]]\ntoolchain = 'cu131'\nreason='x'\n"
                      .replace("name = 'cu130'", "name = '!'\ntorch='2.9'\ntriton='3.5'"))  # fmt: skip
    assert "toolchains[1].name: '!' does not fit" in fault


def test_each_wrong_rule_is_told_once(faults):
    (fault,) = faults(PAIR.format(exclude="gpu='h20'", include="dtypes=['fp32', 'bf16']"))
    assert "exclude[0].gpu: 'h20' matches no gpu" in fault
    (fault,) = faults(PAIR.format(exclude="gpu='*'", include="dtypes=['fp32', 'bf16']"))
    assert "exclude[0]: excludes every cell" in fault
    (fault,) = faults("[[exclude]]\ngpu = 'cpu'\nreason = 'x'\n[[override]]\nmatch.gpu = 'cpu'\n")
    assert "override[0]: changes nothing" in fault
