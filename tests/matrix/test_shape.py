from __future__ import annotations

import pytest


def test_an_unknown_key_names_what_is_allowed_and_the_closest(faults):
    (fault,) = faults("levls = [1]\n")
    what, allowed, close = fault.split("; ")
    assert what == "matrix.toml:20:1 problems[0].levls: unknown key"
    assert allowed == "allowed: source, path, select, levels, categories, tags, workloads, ranks"
    assert close == "did you mean 'levels'?"


def test_unknown_key_without_close_match_has_no_suggestion(faults):
    (fault,) = faults("[policy]\nzzz = 1\n")
    assert fault.startswith("matrix.toml:21:1 policy.zzz: unknown key; allowed: clocks, clock_target,")
    assert "did you mean" not in fault


def test_a_misspelt_required_key_is_one_fault_not_two(faults, minimal):
    (fault,) = faults(base=minimal.replace("triton =", "trition ="))
    assert "toolchains[0].trition: unknown key" in fault


WRONG = {
    "type": ("[protocol]\ntrials = 'five'\n", "protocol.trials: must be a whole number, got the text 'five'"),
    "fraction": ("[protocol]\ntrials = 1.5\n", "protocol.trials: must be a whole number, got the number 1.5"),
    "boolean for a number": ("[protocol]\ntrials = true\n", "protocol.trials: must be a whole number, got true"),
    "number for a boolean": ("[policy]\nallow_mig = 0\n", "policy.allow_mig: must be true or false, got the number 0"),
    "word for a clock": (
        "[policy]\nclock_target = 'bse'\n",
        (
            "policy.clock_target: 'bse' does not fit; must be base, max, "
            "a number of MHz, or a table of these per glob on the product name"
        ),
    ),
    "word for a model's clock": (
        "[policy]\nmemory_clock = { '*H200*' = 'base' }\n",
        (
            "policy.memory_clock.\"*H200*\": 'base' does not fit; must be auto, off, max, "
            "a number of MHz, or a table of these per glob on the product name"
        ),
    ),
    "clock": ("[policy]\nclock_target = 0\n", "policy.clock_target: 0 is out of range; must be at least 1"),
    "list for a text": ("[[candidates]]\nmethod = ['a']\n", "candidates[0].method: must be text in quotes, got a list"),
    "number for text or list": (
        "[[candidates]]\nselect = 3\n",
        'candidates[0].select: must be text in quotes or a list, got the number 3; write "3"',
    ),
    "date": ("[policy]\npids = 2020-01-01\n", "policy.pids: must be a whole number, got the date or time 2020-01-01"),
    "table": ("[policy.clocks]\n", "policy.clocks: {} is not known; allowed: observe, lock, require"),
    "too small": ("[protocol]\ntrials = 0\n", "protocol.trials: 0 is out of range; must be at least 1"),
    "too large": ("[protocol]\ncheck_share = 2\n", "protocol.check_share: 2 is out of range; must be at most 1"),
    "not above zero": ("[protocol]\nbudget_s = 0\n", "protocol.budget_s: 0 is out of range; must be more than 0"),
    "not below one": (
        "[protocol]\ntarget_half_width = 1.0\n",
        "protocol.target_half_width: 1.0 is out of range; must be less than 1",
    ),
    "infinite": ("[policy]\ngpu_wait_s = inf\n", "policy.gpu_wait_s: inf is not allowed; must be finite"),
    "not a number": ("[policy]\ngpu_wait_s = nan\n", "policy.gpu_wait_s: nan is not allowed; must be finite"),
    "word": (
        "[protocol]\ntier = 'Publsh'\n",
        "protocol.tier: 'Publsh' is not known; allowed: values, quick, screen, publish; did you mean 'publish'?",
    ),
    "text for a boolean": ("[protocol]\ntime = 'no'\n", "protocol.time: must be true or false, got the text 'no'"),
    "number for a switch": ("[protocol]\ntime = 1\n", "protocol.time: must be true or false, got the number 1"),
    "boolean that the tier forbids": ("[protocol]\ntime = false\n", "protocol.time: must be true for tier 'screen'"),
    "element": (
        "[protocol]\nmodes = [\n'standard',\n'outliers']\n",
        "protocol.modes[1]: 'outliers' is not known; allowed: standard, outlier, exact; did you mean 'outlier'?",
    ),
    "missing element": (
        "[protocol]\nregimes = ['warm']\n",
        "protocol.regimes: 'cold' is missing; the list must have it",
    ),
    "repeated element": (
        "[protocol]\nmodes = ['standard', 'standard']\n",
        "protocol.modes[1]: 'standard' is given twice, first as element 0",
    ),
    "empty list": ("[[candidates]]\nselect = []\n", "candidates[0].select: the list is empty; give at least one value"),
    "empty text": ("[[candidates]]\nmodel = ''\n", "candidates[0].model: the text is empty"),
    "empty match": (
        "[[override]]\nworkloads = 'smoke'\nmatch = {}\n",
        "override[0].match: the table is empty; allowed: gpu, toolchain, dtype, problem, candidate, language, category",
    ),
    "long text": (
        f"[[candidates]]\npath = '{'a' * 5000}'\n",
        "candidates[0].path: the text is too long; must have at most 4096 characters",
    ),
    "form": (
        "[[toolchains]]\nname = 't'\ntriton = '3.5'\ntorch = '2'\n",
        "toolchains[1].torch: '2' does not fit; a version is written like \"2.9.0\"",
    ),
    "line end": (
        '[[candidates]]\npath = "problems\\n"\n',
        "candidates[0].path: 'problems\\n' does not fit; a path holds no control characters",
    ),
    "no reason": ("[[exclude]]\ngpu = 'cpu'\n", "exclude[0].reason: missing; why, in words; shown in the plan"),
    "unquoted version": (
        "[[gpus]]\nname = 'x'\ncompute_capability = 9.0\n",
        'gpus[2].compute_capability: must be text in quotes, got the number 9.0; write "9.0"',
    ),
}


@pytest.mark.parametrize(("added", "expected"), WRONG.values(), ids=WRONG)
def test_each_wrong_shape_has_one_sentence(faults, added, expected):
    (fault,) = faults(added)
    assert fault.split(" ", 1)[1].lower() == expected.lower()


@pytest.mark.parametrize("axis", ["gpus", "toolchains", "dtypes", "problems"])
def test_an_empty_axis_is_refused(faults, axis):
    rest = {"gpus": [{"name": "a"}], "toolchains": [{"name": "t", "torch": "2.9", "triton": "3.5"}], "dtypes": ["fp32"]}
    rest["problems"] = [{"source": "folder", "path": "problems"}]
    rest[axis] = []
    text = "name = 'm'\n" + "".join(f"{key} = {_inline(value)}\n" for key, value in rest.items())
    (fault,) = faults(base=text)
    assert fault.endswith(f" {axis}: the list is empty; give at least one value")


def _inline(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(_inline, value)) + "]" if isinstance(value, list) else f"'{value}'"


def test_an_empty_file_misses_every_required_key(faults):
    missing = [line.split(": ")[0] for line in faults(base="")]
    assert missing == [f"matrix.toml:1:1 {key}" for key in ("dtypes", "gpus", "name", "problems", "toolchains")]


def test_a_missing_key_is_told_at_its_table(faults, minimal):
    (fault,) = faults(base=minimal.replace('torch = "2.9.0"\n', ""))
    assert fault == "matrix.toml:12:1 toolchains[0].torch: missing; version of PyTorch in the image"


def test_versions_of_an_environment_are_not_given(faults, minimal):
    (fault,) = faults(base=minimal.replace('torch = "2.9.0"\ntriton = "3.5.0"\n', 'environment = "auto"\n'))
    assert fault.endswith("toolchains[0].cuda: the environment decides it; take it out")


def test_long_values_are_shortened(faults):
    (fault,) = faults(f"[protocol]\ntier = '{'x' * 5000}'\n")
    assert len(fault) < 200


def test_what_is_malformed_hides_nothing_else(faults):
    found = faults("""
        [[gpus]]
        name = 3

        [[exclude]]
        gpu = 7
        toolchain = "cu129"
        reason = "x"

        [protocol]
        trials = 0
        sessions = 2
        tier = "publish"
        """)
    assert [line.split(": ")[0].split()[1] for line in found] == [
        "gpus[2].name", "exclude[0].gpu", "exclude[0].toolchain", "protocol.trials", "protocol.sessions",
    ]  # fmt: skip


def test_what_is_malformed_causes_no_further_fault(faults):
    (fault,) = faults("""
        [[gpus]]
        nam = "h100"

        [[exclude]]
        gpu = "h100"
        reason = "x"
        """)
    assert "gpus[2].nam: unknown key" in fault
    (fault,) = faults("[[exclude]]\ngpuu = 'cpu'\nreason = 'x'\n")
    assert "exclude[0].gpuu: unknown key" in fault


def test_a_repeated_element_hides_nothing_else(faults, minimal):
    found = faults("[[exclude]]\ndtype = 'fp16'\nreason = 'x'\n", base=minimal.replace('"bf16"]', '"fp32"]'))
    assert [line.split(": ")[0].split()[1] for line in found] == ["dtypes[1]", "exclude[0].dtype"]
