from __future__ import annotations

import copy
import os
import random
import string
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.errors import ConfigError
from kernel_matrix.matrix import (
    CandidateSet,
    Exclude,
    GpuAxis,
    Include,
    Match,
    Override,
    Policy,
    ProblemSet,
    Protocol,
    Toolchain,
)
from kernel_matrix.matrix.load import load_matrix, position_of
from kernel_matrix.model.enums import ClockPolicy, Dtype, InputMode, Language, Tier
from kernel_matrix.model.messages import ProtocolSpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = Path(__file__).parents[2] / "matrix.toml"


def test_the_smallest_matrix_gets_every_default(load, tmp_path):
    matrix = load()
    assert matrix.name == "m"
    assert matrix.path == tmp_path / "matrix.toml"
    assert matrix.gpus == (GpuAxis(name="cpu", platform="cpu"), GpuAxis(name="h200", model="NVIDIA H200*"))
    assert matrix.toolchains == (Toolchain(name="cu128", cuda="12.8", torch="2.9.0", triton="3.5.0"),)
    assert matrix.dtypes == (Dtype.FP32, Dtype.BF16)
    assert matrix.problems == (ProblemSet(source="folder", path=tmp_path / "problems"),)
    assert matrix.candidates == (CandidateSet(),)
    assert (matrix.protocol, matrix.policy) == (Protocol(), Policy())
    assert (matrix.include, matrix.exclude, matrix.overrides) == ((), (), ())


@pytest.mark.parametrize(
    ("written", "read"), [("auto", "auto"), ("../venv", "{parent}/venv"), ("/opt/env", "/opt/env")]
)
def test_toolchain_may_be_an_environment(load, tmp_path, written, read):
    matrix = load(f"""
        [[toolchains]]
        name = "here"
        environment = "{written}"
    """)
    here = matrix.toolchains[-1]
    assert here.environment == read.format(parent=tmp_path.parent)
    assert (here.platform, here.versions) == ("", {})


def test_a_toolchain_may_have_further_languages(load):
    matrix = load("""
        [[toolchains]]
        name = "tiles"
        cuda = "12.8"
        torch = "2.9.0"
        triton = "3.5.0"
        languages = ["tilelang", "cute_dsl"]
    """)
    assert [toolchain.languages for toolchain in matrix.toolchains] == [(), (Language.TILELANG, Language.CUTE_DSL)]


def test_every_key_arrives(load, tmp_path):
    (tmp_path / "mine").mkdir()
    matrix = load("""
        select = ["a*", "b"]
        levels = 2
        categories = "norm"
        tags = ["fast"]
        workloads = "smoke"
        ranks = [2, 4]

        [[candidates]]
        select = "*/best"
        path = "./mine"
        method = "search"
        model = "m1"

        [[gpus]]
        name = "this-one"
        uuid = "GPU-0a1b"
        compute_capability = "9.0"
        min_memory_gib = 80

        [[gpus]]
        name = "several"
        model = "NVIDIA H100*"
        units = 3
        link = "pcie"
        without = ["GPU-1", "GPU-2"]

        [protocol]
        tier = "publish"
        sessions = 7
        seed = 3
        modes = ["outlier"]
        budget_s = 90

        [policy]
        clocks = "lock"
        pids = 64

        [[include]]
        problem = "sum"
        dtypes = ["fp64"]
        reason = "precision"

        [[exclude]]
        gpu = ["cpu", "h*"]
        language = "cuda"
        reason = "no"

        [[override]]
        match = { category = "norm" }
        protocol = { tier = "screen", modes = ["standard"], budget_s = 5 }
        policy.call_timeout_s = 2
        workloads = ["smoke", "large"]
        """)
    assert matrix.problems == (
        ProblemSet(
            source="folder",
            path=tmp_path / "problems",
            select=("a*", "b"),
            levels=(2,),
            categories=("norm",),
            tags=("fast",),
            workloads=("smoke",),
            ranks=(2, 4),
        ),
    )
    assert matrix.candidates == (CandidateSet(select=("*/best",), path=tmp_path / "mine", method="search", model="m1"),)
    assert matrix.gpus[2] == GpuAxis(name="this-one", uuid="GPU-0a1b", compute_capability="9.0", min_memory_gib=80.0)
    assert matrix.gpus[3] == GpuAxis(
        name="several", model="NVIDIA H100*", units=3, link="pcie", without=("GPU-1", "GPU-2")
    )
    spec = ProtocolSpec(
        trials=10,
        min_samples=100,
        max_samples=1000,
        target_half_width=0.0025,
        precision_s=20.0,
        budget_s=90.0,
        modes=(InputMode.OUTLIER,),
    )
    assert matrix.protocol == Protocol(tier=Tier.PUBLISH, sessions=7, max_sessions=10, seed=3, spec=spec)
    assert matrix.policy == Policy(clocks=ClockPolicy.LOCK, pids=64)
    assert matrix.include == (Include(match=Match(problem=("sum",)), dtypes=(Dtype.FP64,), reason="precision"),)
    assert matrix.exclude == (Exclude(match=Match(gpu=("cpu", "h*"), language=("cuda",)), reason="no"),)
    screen = {
        "sessions": 1,
        "max_sessions": 1,
        "trials": 5,
        "time": True,
        "min_samples": 40,
        "max_samples": 400,
        "target_half_width": 0.005,
        "precision_s": 0.5,
        "steady_cap_s": 2.0,
    }
    assert matrix.overrides == (
        Override(
            match=Match(category=("norm",)),
            protocol={**screen, "tier": Tier.SCREEN, "modes": (InputMode.STANDARD,), "budget_s": 5.0},
            policy={"call_timeout_s": 2.0},
            workloads=("smoke", "large"),
        ),
    )


def test_paths_start_from_the_file_not_from_the_working_folder(load, tmp_path, monkeypatch):
    load()
    monkeypatch.chdir(os.sep)
    relative = Path(os.path.relpath(tmp_path / "matrix.toml"))
    assert load_matrix(relative).problems[0].path == tmp_path / "problems"


def test_the_file_is_called_as_the_reader_called_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.toml").write_text("dtype = []\n")
    with pytest.raises(ConfigError, match=r"^my\.toml:1:1 ") as caught:
        load_matrix(Path("my.toml"))
    assert caught.value.exit_code == 2
    assert "docs matrix" in caught.value.next_step


def test_a_byte_order_mark_and_carriage_returns_move_nothing(load, tmp_path, minimal):
    path = tmp_path / "matrix.toml"
    path.write_bytes(("\ufeff" + minimal + "zz = 1\n").replace("\n", "\r\n").encode())
    with pytest.raises(ConfigError, match=r"matrix.toml:20:1 problems\[0\]\.zz: unknown key"):
        load_matrix(path)


SYNTAX = {
    "no value": (b"a = 1\nb = \n", "2:5 not valid TOML: invalid value"),
    "no end": (b"a = [1,\n2", "2:2 not valid TOML: unclosed array"),
    "key twice": (b"a = 1\n\nb = 1\na = 2\n", "4:6 not valid TOML: cannot overwrite a value"),
    "digits": (b"a = " + b"1" * 5000, "1:1 not valid TOML: exceeds the limit"),
    "depth": (b"a = " + b"[" * 100_000, "1:1 not valid TOML: nested too deeply"),
    "not UTF-8": (b"a = 1\nb = '\xff'\n", "2:1 is not UTF-8 text"),
}


@pytest.mark.parametrize(("content", "expected"), SYNTAX.values(), ids=SYNTAX)
def test_what_is_no_toml_is_one_line_with_its_place(tmp_path, content, expected):
    path = tmp_path / "matrix.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_matrix(path)
    (fault,) = caught.value.problems
    assert fault.lower().startswith(f"{path}:{expected}".lower())
    assert "\n" not in fault


def test_a_valid_file_nested_beyond_reason_is_refused_in_words(load, faults):
    for depth in range(50, 1000, 50):
        (fault,) = faults("x = " + "[" * depth + "]" * depth + "\n")
        assert "unknown key" in fault or "nested too deeply" in fault


def test_load_with_deeper_parser_still_reports_nesting(faults, monkeypatch):
    nested = []
    for _ in range(5000):
        nested = [nested]
    monkeypatch.setattr("kernel_matrix.config_files.config_text.parse_toml", lambda _: {"x": nested})
    (fault,) = faults()
    assert fault == "matrix.toml:1:1 is nested too deeply to be a matrix"


@pytest.mark.parametrize("make", [lambda _: None, Path.mkdir], ids=["absent", "folder"])
def test_a_file_that_cannot_be_read(tmp_path, make):
    make(tmp_path / "matrix.toml")
    with pytest.raises(ConfigError, match=r"matrix.toml: cannot be read: ") as caught:
        load_matrix(tmp_path / "matrix.toml")
    assert caught.value.next_step


def test_all_faults_of_a_file_come_at_once_in_its_order(faults):
    found = faults("""
        levls = 1
        [policy]
        clocks = "lok"
        [protocol]
        tier = "publish"
        sessions = 1
        [[exclude]]
        gpu = "h20"
        """)
    assert [line.split(": ")[0] for line in found] == [
        "matrix.toml:21:1 problems[0].levls",
        "matrix.toml:23:1 policy.clocks",
        "matrix.toml:26:1 protocol.sessions",
        "matrix.toml:27:1 exclude[0].reason",
        "matrix.toml:28:1 exclude[0].gpu",
    ]


def test_position_of_serves_those_who_check_further(load, tmp_path):
    load("select = 'nothing*'\n")
    assert position_of(tmp_path / "matrix.toml", "problems[0].select") == (20, 1)
    assert position_of(tmp_path / "matrix.toml", "problems[0].tags") == (17, 1)


# --- the shipped file


def test_the_shipped_matrix_is_right():
    matrix = load_matrix(SHIPPED)
    assert {gpu.name for gpu in matrix.gpus} >= {"cpu", "h100", "h200", "a100", "mi300x"}
    assert [toolchain.name for toolchain in matrix.toolchains] == ["cpu", "cu124", "cu128", "cu130", "rocm72", "here"]
    assert SHIPPED.read_text().startswith("#:schema schemas/matrix.schema.json\n")


# --- whatever is in the file, the answer is a Matrix or a ConfigError


SCALARS = [True, False, -1, 0, 3, 10**30, 1.5, float("nan"), float("inf"), "", "*", "cpu", "fp32", "[", "~x", "\n"]
KEYS = st.sampled_from(["name", "gpu", "tier", "x y"])
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)

FULL = tomllib.loads("""
name = "m"
dtypes = ["fp32", "bf16"]
gpus = [{name = "cpu", vendor = "cpu"}, {name = "h200", model = "NVIDIA H200*"}]
toolchains = [{name = "cu128", cuda = "12.8", torch = "2.9.0", triton = "3.5.0"}]
problems = [{source = "folder", path = ".", select = "*", levels = [1]}]
candidates = [{select = ["*"]}]
protocol = {tier = "screen", modes = ["standard"], sessions = 2}
policy = {clocks = "lock", pids = 64}
include = [{problem = "sum", dtypes = ["fp64"], reason = "x"}]
exclude = [{gpu = "cpu", dtype = ["bf16"], reason = "x"}, {language = "cuda", gpu = "cpu", reason = "y"}]
override = [{match = {gpu = "cpu"}, protocol = {trials = 3}, policy = {pids = 32}, workloads = ["smoke"]}]
""")


def places(node, path=()):
    items = list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ())
    yield from ((*path, key) for key, _ in items)
    for key, item in items:
        yield from places(item, (*path, key))


def write(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{write(str(key))} = {write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(write, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return str(value).lower() if isinstance(value, (bool, float)) else str(value)


def change(document, place, value):
    """Put ``value`` at ``place``, unless an earlier change removed the place."""
    *around, last = place
    with suppress(IndexError, KeyError, TypeError):
        for part in around:
            document = document[part]
        document[last] = value


@settings(deadline=None, max_examples=300)
@given(changes=st.lists(st.tuples(st.sampled_from(list(places(FULL))), VALUES), min_size=1, max_size=3))
def test_any_change_of_a_good_file_is_read_or_refused(tmp_path_factory, changes):
    document = copy.deepcopy(FULL)
    for place, value in changes:
        change(document, place, value)
    path = tmp_path_factory.getbasetemp() / "changed.toml"
    path.write_text("".join(f"{key} = {write(value)}\n" for key, value in document.items()))
    check_answer(path)


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_any_damage_to_the_shipped_file_is_read_or_refused(tmp_path_factory, seed):
    rng = random.Random(seed)
    text = list(SHIPPED.read_text())
    for _ in range(rng.randint(1, 4)):
        text[rng.randrange(len(text))] = rng.choice(["", "\n", '"', "[", "]", "=", "#", *string.ascii_lowercase[:4]])
    path = tmp_path_factory.getbasetemp() / "damaged.toml"
    path.write_text("".join(text))
    check_answer(path)


def check_answer(path):
    faults = []
    try:
        assert load_matrix(path).gpus
    except ConfigError as error:
        faults = error.problems or [""]
    assert all("\n" not in line and line.startswith(f"{path}:") for line in faults)
