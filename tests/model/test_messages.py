"""Messages between host and judge: strict JSON that comes back as it was, or is refused with the key's name."""

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.model.enums import (
    CollectiveKind,
    Dtype,
    Fault,
    Implementation,
    InputMode,
    Regime,
    Role,
    Stage,
    Status,
    fault_of,
)
from kernel_matrix.model.messages import (
    ONCE_TIMED,
    UNTIMED,
    AnchorTimes,
    BatchBlock,
    Block,
    ClockProbeReading,
    CollectiveSize,
    ContestantSpec,
    ContractSpec,
    Evidence,
    HealthReport,
    InsideEnvironment,
    JudgeJob,
    JudgeTimeouts,
    PeakSpec,
    ProtocolSpec,
    SessionReport,
    TracedKernel,
    Traits,
    Trial,
    TwoClocks,
    WorkloadReport,
    WorkloadSpec,
    dumps,
    from_json,
    to_json,
)

BLOCK = Block(
    role=Role.BASELINE,
    index=3,
    started_ns=10**15,
    ended_ns=10**15 + 5,
    device_ns=(7, 8),
    wall_ns=(9, 10),
    discarded=((1, "foreign process"),),
    sm_clock_mhz=1972.5,
    mem_clock_mhz=3201,
    power_w=398.25,
    contestant="eager",
    regime=Regime.WARM,
    calls_per_sample=20,
)
BATCHES = BatchBlock(
    "candidate",
    10**15,
    10**15 + 9,
    True,
    False,
    (2, 9),
    (1, 2),
    (1, 1),
    (3, 4),
    (5, 6),
    in_place=True,
)
PROBE = ClockProbeReading("before", 10**15, 10**15 + 3, sm_mhz=1979.99, low_mhz=1979.5, high_mhz=1980.25, sms=132)
TWO_CLOCKS = TwoClocks(2000, -50, 700, floor_ns=None, floor_reason="no peak rate is known", low_resolution=True)
TRAITS = Traits(deterministic=True, sensitivity=(0.5, 1.25), exact=False, quality={"cosine": 0.999})
ANCHOR = AnchorTimes("before", 10**15, compute_ns=250_000, memory_ns=30_000)
SEEN = TracedKernel("void softmax_kernel<float>(float*)", launches=2, device_ns=9000, own=True)
REDUCED = CollectiveSize(CollectiveKind.ALL_REDUCE, 12.0)
TRIAL = Trial(InputMode.OUTLIER, 4, "timed", passed=False, max_error=None, error_ratio=1.5)
WORKLOAD = WorkloadReport(
    name="smoke",
    values={"n": 8, "shape": [1, 2], "name": "größe", "on": True},
    flops=1e12,
    bytes=None,
    status=Status.INCORRECT_VALUES,
    tolerance={"rtol": 1e-4},
    reference_dtype="float64",
    trials=(TRIAL,),
    blocks=(BLOCK,),
    warmup_calls=12,
    flush_bytes=0,
    inputs="fresh",
    checked_calls=2,
    wall_overhead_ns=None,
    two_clocks=TWO_CLOCKS,
    traits=TRAITS,
    batches=(BATCHES,),
    collective=REDUCED,
)
ENVIRONMENT = InsideEnvironment(
    python="3.11.9",
    torch="2.6.0",
    cuda=None,
    cudnn=None,
    triton="3.2.0",
    ptxas=None,
    nvcc=None,
    cuda_driver="12.8",
    libcuda="/usr/lib/libcuda.so.1",
    device_name="a GPU",
    compute_capability="9.0",
    l2_bytes=50 << 20,
    platform="Linux",
    libc="glibc-2.36",
    threads=4,
    settings={"TRITON_INTERPRET": "1"},
)
EVIDENCE = Evidence(message="no", log="tail", output=1, index=(0, 5), expected="1.0", got="nan", allowed=0.5, trial=2)
REPORT = SessionReport(
    cell_id="c" * 32,
    session=2,
    status=Status.INCORRECT_VALUES,
    stage=Stage.TIME,
    evidence=EVIDENCE,
    environment=ENVIRONMENT,
    seed_sha256="0" * 64,
    transport="memfd",
    candidate_peer={"pid": 2, "uid": 3, "gid": 4},
    workloads=(WORKLOAD,),
    durations_s={"total": 1.5},
    labels=("budget_reached",),
    clock_probes=(PROBE, replace(PROBE, phase="after")),
    anchors=(ANCHOR,),
    kernels=(SEEN,),
    health=HealthReport(passed=None, reason="it could not be asked"),
)
PROTOCOL = ProtocolSpec(
    trials=2,
    modes=(InputMode.STANDARD,),
    inputs="rotating",
    time=False,
    steady_cap_s=0.5,
    regimes=(Regime.COLD, Regime.BURST),
    baselines=(Implementation.EAGER, Implementation.COMPILE_MAX_AUTOTUNE),
)
JOB = JudgeJob(
    cell_id="c" * 32,
    session=1,
    device="cuda",
    dtype=Dtype.BF16,
    seed="0123456789abcdef" * 2,
    workloads=(WorkloadSpec("default", {"n": 3}, flops=2.0, bytes=8.0, collective=REDUCED), WorkloadSpec("smoke")),
    protocol=PROTOCOL,
    timeouts=JudgeTimeouts(call_s=3),
    tolerance={"atol": 0.5},
    outliers=False,
    mutates_inputs=True,
    labels=("interpreted",),
    gpu_uuid="GPU-00000000-0000-0000-0000-0000000000a1",
    contestants=(
        ContestantSpec("candidate", Role.CANDIDATE, "candidate.py", "ModelNew", uid=4242),
        ContestantSpec("eager", Role.BASELINE, "problem.py", "Model"),
        ContestantSpec("compile", Role.RIVAL, "problem.py", "Model", compile_mode="default"),
    ),
    peak=PeakSpec(bytes_per_s=4.8e12),
    contract=ContractSpec("w8a8", 0.99, 0.1, 0.1, 20.0, 60.0),
    own_kernels=("softmax_kernel",),
    require_own_kernel=True,
    check_health=True,
    sanitize=("memcheck",),
)
PARTS = (JOB.peak, JOB.contract, TWO_CLOCKS, ANCHOR, SEEN, REPORT.health)
MESSAGES = (
    *(BLOCK, PROBE, WORKLOAD, ENVIRONMENT, EVIDENCE, REPORT, PROTOCOL, JOB, JudgeTimeouts(), WorkloadSpec("x")),
    *PARTS,
)


def kind_of(message):
    return type(message).__name__


def as_json(message):
    return json.loads(dumps(message))


@pytest.mark.parametrize("message", [*MESSAGES, replace(REPORT, environment=None)], ids=kind_of)
def test_a_message_comes_back_as_it_was(message):
    assert from_json(type(message), as_json(message)) == message


PROTOCOLS = st.builds(
    ProtocolSpec,
    modes=st.lists(st.sampled_from(InputMode)).map(tuple),
    regimes=st.lists(st.sampled_from(Regime)).map(lambda others: (Regime.COLD, *others)),
    baselines=st.lists(st.sampled_from(Implementation)).map(lambda others: (*others, Implementation.EAGER)),
    **{
        f.name: st.from_type(type(f.default))
        for f in fields(ProtocolSpec)
        if type(f.default) in (int, float, str, bool)
    },
)


@settings(deadline=None)
@given(evidence=st.from_type(Evidence), protocol=PROTOCOLS, timeouts=st.from_type(JudgeTimeouts))
def test_whatever_is_strict_json_comes_back_as_it_was(evidence, protocol, timeouts):
    for message in (evidence, protocol, timeouts):
        if all(math.isfinite(value) for value in vars(message).values() if isinstance(value, float)):
            assert from_json(type(message), json.loads(dumps(message))) == message
        else:
            with pytest.raises(ValueError):
                dumps(message)


def test_the_same_message_is_the_same_text():
    other = replace(REPORT, candidate_peer={"gid": 4, "uid": 3, "pid": 2})
    assert dumps(REPORT) == dumps(other)
    assert "\n" not in dumps(REPORT)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_that_json_does_not_have_is_written(value):
    with pytest.raises(ValueError, match="Out of range float"):
        dumps(replace(REPORT, durations_s={"total": value}))


def test_keys_that_are_not_text_become_text():
    assert to_json({1: (InputMode.STANDARD, None)}) == {"1": ["standard", None]}


@pytest.mark.parametrize("message", MESSAGES, ids=kind_of)
def test_an_unknown_key_is_named(message):
    with pytest.raises(ValueError, match=r"unknown key 'colour'"):
        from_json(type(message), {**as_json(message), "colour": 1})


REQUIRED = [
    (message, field.name)
    for message in MESSAGES
    for field in fields(message)
    if field.default is field.default_factory  # both are the mark for "missing"
]


def test_there_are_required_keys():
    assert len(REQUIRED) > 40


@pytest.mark.parametrize(("message", "key"), REQUIRED, ids=[f"{kind_of(m)}.{k}" for m, k in REQUIRED])
def test_a_missing_key_is_named(message, key):
    document = as_json(message)
    del document[key]
    with pytest.raises(ValueError, match=f"'{key}'"):
        from_json(type(message), document)


@pytest.mark.parametrize("kind", [type(m) for m in MESSAGES], ids=lambda k: k.__name__)
@pytest.mark.parametrize("document", [None, 7, "text", [], {}], ids=repr)
def test_what_is_no_such_object_is_a_value_error(kind, document):
    if document == {} and not any(k is kind for k, _ in ((type(m), n) for m, n in REQUIRED)):
        assert from_json(kind, document) == kind()
        return
    with pytest.raises(ValueError):
        from_json(kind, document)


WRONG = {
    "a status nobody knows": (REPORT, ("status",), "fine", "'fine' is not a valid Status"),
    "a stage nobody knows": (REPORT, ("stage",), "later", "'later' is not a valid Stage"),
    "a dtype nobody knows": (JOB, ("dtype",), "fp4", "'fp4' is not a valid Dtype"),
    "a mode nobody knows": (JOB, ("protocol", "modes", 0), "odd", "'odd' is not a valid InputMode"),
    "a regime nobody knows": (JOB, ("protocol", "regimes", 1), "hot", "'hot' is not a valid Regime"),
    "a baseline nobody knows": (JOB, ("protocol", "baselines", 1), "jax", "'jax' is not a valid Implementation"),
    "a regime of a block nobody knows": (BLOCK, ("regime",), "hot", "'hot' is not a valid Regime"),
    "a role of a contestant nobody knows": (JOB, ("contestants", 0, "role"), "host", "'host' is not a valid Role"),
    "a uid that is text": (JOB, ("contestants", 0, "uid"), "0", "'uid' cannot be '0'"),
    "a peak that is text": (JOB, ("peak", "bytes_per_s"), "fast", "'bytes_per_s' cannot be 'fast'"),
    "a kernel that is text": (REPORT, ("kernels", 0), "k", "TracedKernel: expected an object, got str"),
    "a health that is text": (REPORT, ("health",), "well", "HealthReport: expected an object, got str"),
    "a role nobody knows": (BLOCK, ("role",), "host", "'host' is not a valid Role"),
    "text for a number": (JOB, ("protocol", "trials"), "five", "'trials' cannot be 'five'"),
    "true for a number": (JOB, ("session",), True, "'session' cannot be True"),
    "a fraction for a whole number": (REPORT, ("session",), 1.5, "'session' cannot be 1.5"),
    "a number for text": (REPORT, ("evidence", "message"), 7, "'message' cannot be 7"),
    "a number for yes or no": (JOB, ("outliers",), 1, "'outliers' cannot be 1"),
    "null where something is due": (REPORT, ("cell_id",), None, "'cell_id' cannot be None"),
    "a time that is text": (REPORT, ("durations_s", "total"), "1", "'durations_s' cannot be"),
    "a sample that is text": (REPORT, ("workloads", 0, "blocks", 0, "device_ns", 1), "8", "'device_ns' cannot be"),
    "a block's clock that is text": (BLOCK, ("sm_clock_mhz",), "1980", "'sm_clock_mhz' cannot be '1980'"),
    "a probe's clock that is null": (REPORT, ("clock_probes", 1, "sm_mhz"), None, "'sm_mhz' cannot be None"),
    "a number for a probe": (REPORT, ("clock_probes", 0), 7, "ClockProbeReading: expected an object, got int"),
    "a list for an object": (REPORT, ("candidate_peer",), [], r"'candidate_peer' cannot be \[\]"),
    "a list for evidence": (REPORT, ("evidence",), [], "Evidence: expected an object, got list"),
    "a number for evidence": (REPORT, ("evidence",), 7, "Evidence: expected an object, got int"),
    "null for a workload": (REPORT, ("workloads", 0), None, "WorkloadReport: expected an object, got NoneType"),
    "a number for the workloads": (REPORT, ("workloads",), 7, "'workloads' cannot be 7"),
    "an endless place of a discarded sample": (BLOCK, ("discarded", 0, 0), math.inf, "'discarded' cannot be"),
    "a discarded sample without a cause": (BLOCK, ("discarded", 0), [1], "'discarded' cannot be"),
    "an index that is text": (EVIDENCE, ("index", 0), "0", "'index' cannot be"),
    "another schema version as text": (REPORT, ("schema_version",), "1", "'schema_version' cannot be '1'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(name):
    message, path, value, words = WRONG[name]
    document = place = as_json(message)
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=words):
        from_json(type(message), document)


def test_a_long_wrong_value_is_not_repeated_whole():
    with pytest.raises(ValueError) as raised:
        from_json(Evidence, {"trial": "x" * 100_000})
    assert len(str(raised.value)) < 200


def test_a_whole_number_is_a_fraction_too():
    assert from_json(JudgeTimeouts, {"call_s": 3}).call_s == 3


IMPOSSIBLE_JOBS = {
    "a device that is no name": ({"device": "../tpu"}, "device is '../tpu', must be the name of a platform"),
    "no workload": ({"workloads": ()}, "at least one workload"),
    "no baseline": ({"contestants": JOB.contestants[:1]}, "one candidate and one baseline"),
    "two candidates": (
        {"contestants": (*JOB.contestants[:1] * 2, JOB.contestants[1])},
        "one candidate and one baseline",
    ),
    "a short seed": ({"seed": "0123"}, "32 lower-case hex digits"),
    "a seed in capitals": ({"seed": "0123456789ABCDEF" * 2}, "32 lower-case hex digits"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE_JOBS)
def test_an_impossible_job_cannot_be_made(name):
    changes, words = IMPOSSIBLE_JOBS[name]
    with pytest.raises(ValueError, match=words):
        replace(JOB, **changes)


def test_protocol_without_cold_or_eager_is_refused():
    with pytest.raises(ValueError, match="regimes must include 'cold'"):
        ProtocolSpec(regimes=(Regime.WARM,))
    with pytest.raises(ValueError, match="baselines must include 'eager'"):
        ProtocolSpec(baselines=(Implementation.COMPILE,))


def test_report_without_contestant_names_can_be_read():
    document = as_json(REPORT)
    for key in ("anchors", "kernels", "health"):
        del document[key]
    for workload in document["workloads"]:
        for key in ("two_clocks", "traits"):
            del workload[key]
        for block in workload["blocks"]:
            for key in ("contestant", "regime", "calls_per_sample"):
                del block[key]
    (workload,) = from_json(SessionReport, document).workloads
    assert (workload.two_clocks, workload.traits) == (None, Traits())
    assert {(b.contestant, b.regime, b.calls_per_sample) for b in workload.blocks} == {("", Regime.COLD, 1)}


def test_a_block_has_as_many_times_of_either_clock():
    with pytest.raises(ValueError, match="as many wall times as device times"):
        replace(BLOCK, wall_ns=(1,))


def test_nothing_passes_without_a_workload():
    with pytest.raises(ValueError, match="cannot pass without a workload"):
        replace(REPORT, status=Status.PASSED, workloads=())


@pytest.mark.parametrize("status", sorted(UNTIMED, key=lambda s: s.value), ids=lambda s: s.value)
def test_what_never_ran_has_no_times(status):
    with pytest.raises(ValueError, match="cannot have timed"):
        replace(WORKLOAD, status=status)
    with pytest.raises(ValueError, match="cannot have timed"):
        replace(REPORT, status=status)
    untimed = replace(WORKLOAD, status=status, blocks=())
    assert replace(REPORT, status=status, workloads=(untimed,)).status is status


@pytest.mark.parametrize("status", Status, ids=lambda s: s.value)
def test_a_finding_can_always_be_told_once_something_was_timed(status):
    found = SessionEnded(status, Stage.TIME, EVIDENCE).once_timed()
    assert (found.stage, found.evidence) == (Stage.TIME, EVIDENCE)
    if status in (Status.IMAGE_ERROR, Status.VERIFIED, Status.COMPILED, Status.POLICY_VIOLATION):
        assert status not in ONCE_TIMED  # found by the host, before there is a judge
        return
    report = replace(REPORT, status=found.status, workloads=(replace(WORKLOAD, status=found.status),))
    if status is Status.UNSUPPORTED:
        assert report.fault is Fault.PROBLEM  # only a reference is believed to lack a package so late
    elif status is not Status.PASSED:
        assert report.fault is replace(REPORT, status=status, workloads=()).fault


@pytest.mark.parametrize("status", ONCE_TIMED, ids=lambda s: s.value)
def test_nobody_gets_out_of_the_denominators_by_failing_late(status):
    """After an earlier session was timed, a later failure is the fault of the problem or of the candidate."""
    assert fault_of(ONCE_TIMED[status]) is (Fault.PROBLEM if status is Status.PROBLEM_ERROR else Fault.CANDIDATE)


def test_a_report_says_whose_fault_it_is():
    assert REPORT.fault is Fault.CANDIDATE
    assert replace(REPORT, status=Status.INFRA_ERROR).fault is Fault.INFRA


def test_a_finding_is_placed_without_losing_what_it_says():
    found = SessionEnded(Status.NONFINITE, Stage.VERIFY, EVIDENCE).at(workload="smoke", trial=9)
    assert found.evidence == replace(EVIDENCE, workload="smoke", trial=9)
    assert (found.status, found.stage) == (Status.NONFINITE, Stage.VERIFY)


def test_discarded_sample_stays_and_does_not_count():
    times, discarded = (10, 20, 30), ((1, "throttled: sw_power_cap"),)
    block = Block(Role.CANDIDATE, 0, 1, 2, device_ns=times, wall_ns=times, discarded=discarded)
    assert (block.device_ns, block.kept_ns) == (times, (10, 30))


@pytest.mark.parametrize("name", ["delivered_ns", "least_ns", "wall_ns", "handover_ns"])
def test_batch_block_unequal_lengths_are_refused(name):
    with pytest.raises(ValueError, match="as many times of each kind as batches"):
        replace(BATCHES, **{name: (1, 2, 3)})
    document = to_json(BATCHES)
    document[name] = [1]
    with pytest.raises(ValueError, match="as many times of each kind as batches"):
        from_json(BatchBlock, document)
