from __future__ import annotations

from dataclasses import replace

import pytest
from plan.nouns import CU128, H200, HERE, candidate, problem, selected

from kernel_matrix.matrix import Match, Override, Policy, Protocol
from kernel_matrix.model.enums import ClockPolicy, Dtype, Implementation, InputMode, Regime, Tier
from kernel_matrix.model.messages import ProtocolSpec
from kernel_matrix.plan import cell_id
from kernel_matrix.sources import Workload

BASE = {"gpus": (H200,), "toolchains": (CU128,), "dtypes": (Dtype.FP32,)}


@pytest.fixture
def id_of(plan):
    """The id of the one cell of a plan that differs from the base in what the test names."""

    def found(item=None, **changes):
        (cell,) = plan(item or selected(), **{**BASE, **changes}).cells()
        return cell.id

    return found


def test_an_id_is_the_same_on_every_host_and_python(id_of):
    # Another value here means that no result of an earlier version is found again by `run`.
    assert id_of() == "38bdb99730816de9945ba9b49d53ac16"


def test_id_of_an_environment_does_not_depend_on_its_content(id_of, facts):
    known = replace(HERE, platform="cuda", cuda="13.0", torch="2.11.0", triton="3.6.0")
    before = id_of(toolchains=(HERE,))
    assert id_of(toolchains=(HERE,), facts=replace(facts, environments={"here": known})) == before
    assert id_of(toolchains=(replace(HERE, environment="/venv"),)) == before
    assert id_of(toolchains=(replace(HERE, name="there"),)) != before


def test_an_id_has_32_hex_digits(id_of):
    assert len(id_of()) == 32
    assert set(id_of()) <= set("0123456789abcdef")


SPEC_CHANGES = {
    "trials": 6,
    "modes": (InputMode.STANDARD,),
    "warmup_calls": 11,
    "min_samples": 51,
    "max_samples": 401,
    "target_half_width": 0.006,
    "precision_s": 2.0,
    "budget_s": 21.0,
    "block_calls": 11,
    "inputs": "rotating",
    "rotation": 9,
    "check_share": 0.3,
    "time": False,
    "steady_cap_s": 1.0,
    "regimes": (Regime.COLD, Regime.WARM),
    "baselines": (Implementation.EAGER, Implementation.COMPILE),
}


def test_every_field_of_the_protocol_is_tried_below():
    assert set(SPEC_CHANGES) == set(ProtocolSpec.__dataclass_fields__)


@pytest.mark.parametrize("name", SPEC_CHANGES)
def test_each_number_of_the_protocol_changes_the_id(id_of, name):
    spec = replace(ProtocolSpec(), **{name: SPEC_CHANGES[name]})
    assert id_of(protocol=Protocol(spec=spec)) != id_of()


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": (replace(H200, name="h200b"),)},
        {"toolchains": (replace(CU128, name="cu128b"),)},
        {"toolchains": (replace(CU128, cuda="12.9"),)},
        {"toolchains": (replace(CU128, torch="2.9.1"),)},
        {"toolchains": (replace(CU128, triton="3.5.1"),)},
        {"dtypes": (Dtype.FP16,)},
        {"protocol": Protocol(tier=Tier.PUBLISH)},
        {"protocol": Protocol(sessions=2)},
        {"protocol": Protocol(seed=0)},
        {"policy": Policy(clocks=ClockPolicy.LOCK)},
        {"policy": Policy(device_memory_gib=24.0)},
        {"policy": Policy(require_own_kernel=False)},
        {"policy": Policy(reject_findings=("threads",))},
        {"policy": Policy(sanitize=("memcheck",))},
        {"overrides": (Override(match=Match(), workloads=("smoke",)),)},
        {"overrides": (Override(match=Match(), protocol={"trials": 9}),)},
        {"item": selected(problem(digest="other"))},
        {"item": selected(problem("softmax2"), candidate("softmax/good"))},
        {"item": selected(problem(), candidate(digest="other"))},
        {"item": selected(problem(), candidate("softmax/other", digest="digest of softmax/good"))},
        {"item": replace(selected(), workloads=(Workload(name="default"),))},
    ],
    ids=str,
)
def test_each_ingredient_changes_the_id(id_of, changes):
    assert id_of(**changes) != id_of()


@pytest.mark.parametrize("target", [{"clock_target": 1500}, {"memory_clock": "off"}], ids=str)
def test_a_clock_target_changes_the_id_where_clocks_are_locked(id_of, target):
    locked = Policy(clocks=ClockPolicy.LOCK)
    assert id_of(policy=replace(locked, **target)) != id_of(policy=locked)
    assert id_of(policy=Policy(**target)) == id_of()


@pytest.mark.parametrize(
    "changes",
    [
        {"gpus": (replace(H200, model="*H200*"),)},
        {"policy": Policy(pids=64, gpu_wait_s=1.0, session_timeout_s=10.0)},
        {"item": selected(problem(description="told better", tags=("new",)))},
        {"name": "renamed"},
    ],
    ids=str,
)
def test_irrelevant_settings_do_not_change_the_id(id_of, changes):
    assert id_of(**changes) == id_of()


def test_the_schema_version_changes_the_id(id_of, monkeypatch):
    before = id_of()
    monkeypatch.setattr(cell_id, "SCHEMA_VERSION", cell_id.SCHEMA_VERSION + 1)
    assert id_of() != before


def test_the_order_of_axes_does_not_change_ids(plan, matrix):
    items = selected(), selected(problem("relu"), candidate("relu/b"), candidate("relu/a"))
    turned = selected(problem("relu"), candidate("relu/a"), candidate("relu/b")), items[0]
    other = {axis: getattr(matrix, axis)[::-1] for axis in ("gpus", "toolchains", "dtypes")}
    first, second = list(plan(*items).cells()), list(plan(*turned, **other).cells())
    assert [cell.id for cell in first] != [cell.id for cell in second]
    assert {cell.id for cell in first} == {cell.id for cell in second}
    assert len({cell.id for cell in first}) == len(first) == 12
