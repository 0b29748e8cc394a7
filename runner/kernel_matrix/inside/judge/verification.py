"""Verification of one workload: the problem's controls, the candidate's trials, and checks of timed calls."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

import torch

from kernel_matrix.inside.input_generation import WHOLE_DTYPES, IntegerRange, map_tensors, nbytes_of, tensors_in
from kernel_matrix.inside.judge import controls
from kernel_matrix.inside.judge.bits import all_bits_set, same_bits
from kernel_matrix.inside.judge.checks import CallJudgement, CheckedCall, judge_call, redzones
from kernel_matrix.inside.judge.checks import inputs as inputs_check
from kernel_matrix.inside.judge.checks.distribution import RandomOutputs
from kernel_matrix.inside.judge.checks.failure import CheckFailure, with_rank
from kernel_matrix.inside.judge.checks.values import finite
from kernel_matrix.inside.judge.earlier_cells import WorkloadFacts
from kernel_matrix.inside.judge.memory_blame import RESERVE_BYTES
from kernel_matrix.inside.judge.quality import Quality, worst_of
from kernel_matrix.inside.judge.reference import DrawnInputs, ExpectedOutput, ReferenceModel, drawn_inputs, guarded
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.tolerance import CAP, WORST, AllowedError, Tolerance
from kernel_matrix.inside.judge.worker_client import CallResult, WorkerClient
from kernel_matrix.model.enums import InputMode, Role, Stage, Status
from kernel_matrix.model.messages import ContractSpec, Evidence, JudgeJob, Traits, Trial

Found = TypeVar("Found")

INSENSITIVE = "insensitive"  # label: the answer hardly depends on an input, so skipping it might pass
PRECISION_BLIND = "precision_blind"  # label: the same computation one precision lower would pass too
INPUT_ACCEPTED = "input_accepted"  # label: an input that is returned as it is would pass too
LEFT_OUT = "left_out"  # label, with a mode: its inputs would break what the problem's own inputs have in every draw
# Label: on some inputs with outliers the reference exceeds the tolerance, so WORST times its error was allowed.
HARD_OUTLIERS = "hard_outliers"

GLANCED = 1 << 16  # numbers of an output that a glance or a spot check reads
SPOT_MARGIN = 8.0  # times the tolerance that a spot check allows, as the tolerance was found on other inputs
SPOT_STRAYS = 0.01  # share of the numbers that may be further off: roundings that fell the other way
LARGE = 1 << 30  # above these bytes of inputs and outputs, modes get FEW_TRIALS, and only one runs after timing
# Where memory does not hold this multiple of a call's inputs and outputs, no expected output is kept during a call. Of
# inputs there are two copies, the judge's and the lent one; of outputs three, as returned, lent and taken, and what is
# expected in the cell's dtype and in float64, which takes as much as three more in single precision.
EXPECTED_BESIDE = 6
# Where it does not hold this multiple, the judge has neither its own copy of the inputs during a call nor a buffer for
# the outputs. Nor has it these where memory does not hold the inputs twice and the outputs four times (as returned,
# lent, taken and expected).
OWN_BESIDE = 3
FEW_TRIALS = {InputMode.STANDARD: 2, InputMode.OUTLIER: 1, InputMode.EXACT: 2}
EASINGS = 4  # further inputs for the trusted implementation before nearly correct values are called wrong
NEAR = 1.0 + CAP  # values are nearly correct up to this multiple of the tolerance; luck cannot explain more
HARD = 4.0  # on outliers, the reference may exceed the tolerance up to this factor; beyond, the problem is invalid
WIDE_FROM = 1  # from this trial of mode ``exact`` on, inputs have wide integers, if the answer to them is integers


class _Case:
    """Inputs, and the expected output, which is computed when it is first asked for."""

    def __init__(
        self, drawn: DrawnInputs, expect: Callable[[], ExpectedOutput], mode: InputMode = InputMode.STANDARD
    ) -> None:
        self.drawn = drawn
        self.mode = mode
        self.exact = False
        """True if the answer is integers that every implementation must get exactly."""
        self._expect = expect
        self._expected: Optional[ExpectedOutput] = None

    @property
    def inputs(self) -> List[Any]:
        """The arguments of the call."""
        return self.drawn.values

    @property
    def expected(self) -> ExpectedOutput:
        """The expected output."""
        if self._expected is None:
            self._expected = self._expect()
        return self._expected

    def forget_expected(self) -> None:
        """Free the expected output until it is asked for again."""
        self._expected = None


class _Randomness:
    """Source of the objects that judge random outputs of one workload, call by call."""

    def __init__(self, reference: ReferenceModel, case: _Case, dice: random.Random) -> None:
        """Find out which outputs are random.

        Raises:
            SessionEnded: ``invalid_problem`` if the reference returns the same in two runs.
        """
        self._reference = reference
        self._form = map_tensors(case.inputs, lambda _tensor: torch.empty(0, device="meta"))
        self._dice = dice
        self._start = dice.random()
        self._varies = _guarded(lambda: controls.check_varying(reference, case.inputs, case.expected))
        self._earlier: Dict[str, Dict[int, torch.Tensor]] = {}

    def draw(self, sent: Sequence[torch.Tensor], contestant: str = "") -> RandomOutputs:
        """Make the object that judges one call.

        Args:
            sent: The tensors among its inputs; the other inputs are equal in all calls.
            contestant: The contestant whose earlier outputs must not be repeated; empty for none.
        """
        inputs = _refilled(self._form, sent)
        return RandomOutputs(
            again=lambda: _guarded(lambda: self._reference.answer(inputs)),
            varies=self._varies,
            seed=str(self._dice.getrandbits(63)),
            start=self._start,
            earlier=self._earlier.setdefault(contestant, {}) if contestant else {},
        )


class Verifier:
    """Judge of every call of one workload: :meth:`controls` first, then :meth:`verify` before and after timed calls.

    Faults are raised as :class:`~kernel_matrix.inside.judge.session_ended.SessionEnded`: with the candidate's status,
    or as ``invalid_problem`` for the baseline. The caller turns those of a rival into a label.
    """

    def __init__(
        self,
        job: JudgeJob,
        clients: Mapping[str, WorkerClient],
        dice: random.Random,
        facts: Optional[WorkloadFacts] = None,
    ) -> None:
        """Create a verifier for ``job`` and all contestants; candidate and baseline are found by their roles.

        ``facts`` about the workload are used, and completed.
        """
        self._job = job
        self._facts = facts or WorkloadFacts()
        self._clients = clients
        self._dice = dice
        self._first: Optional[_Case] = None
        self._reference: Optional[ReferenceModel] = None
        self._like: Tuple[torch.Tensor, ...] = ()
        self._is_short = False  # memory may not hold a call and its expected output, by the controls
        self.is_frugal = False
        """True if the judge has little memory during calls (:meth:`.WorkerClient.deliver_drawn`); by the controls."""
        self._qualities: List[Quality] = []
        self._usual: Tuple[AllowedError, ...] = ()  # allowed errors on the first inputs
        self._randomness: Optional[_Randomness] = None  # set by controls if outputs are random
        self._left_out: Tuple[InputMode, ...] = ()
        self._traits = Traits()
        self.tolerance = Tolerance.of(job.dtype, job.tolerance)  # completed by controls
        self.trials: List[Trial] = []
        """Every compared call of the candidate, in order."""
        self.labels: List[str] = []
        """Findings that do not change the verdict."""

    @property
    def traits(self) -> Traits:
        """Properties found so far, besides correctness."""
        return replace(self._traits, quality=worst_of(self._qualities))

    def deliver_first(self, client: WorkerClient) -> None:
        """Deliver the inputs of the candidate's first trial, from :meth:`controls` until then."""
        if self._first is not None:
            client.deliver_drawn(self._first.drawn, self._like, frugal=self.is_frugal)

    def forget_reference(self) -> None:
        """Free the reference and its outputs; nothing can be verified any more."""
        self._first, self._reference, self._randomness = None, None, None

    def controls(self, reference: ReferenceModel) -> None:
        """Run the problem's own controls, on the first inputs that the candidate will get too.

        The reference must agree with itself, in this process and as the baseline; zeros and a constant must not pass.

        Raises:
            SessionEnded: ``invalid_problem`` or ``problem_error``.
        """
        case = self._first = self._case(reference, InputMode.STANDARD, "before", 0)
        self._reference, self._like = reference, reference.like
        call_bytes = reference.call_bytes
        self._is_short = self._lacks_room(reference, EXPECTED_BESIDE * call_bytes)
        own_bytes = max(OWN_BESIDE * call_bytes, 2 * (call_bytes + nbytes_of(reference.like)))
        is_tight = self._lacks_room(reference, own_bytes) and not self._job.mutates_inputs
        self.is_frugal = is_tight and _guarded(case.drawn.can_be_drawn_again)
        self._left_out = tuple(mode for mode in self._modes() if not reference.can_change(mode))
        for mode in self._left_out:
            self.labels.append(f"{LEFT_OUT}:{mode.value}")
        length = controls.reduction_length(reference, case.inputs)
        partial_sums = _guarded(lambda: controls.largest_partial_sums(case.inputs))
        self.tolerance = Tolerance.of(reference.dtype, self._job.tolerance, length, partial_sums)
        if self._job.random:
            self._randomness = _Randomness(reference, case, self._dice)
            self._control_distribution(self._randomness, case)
        else:
            self._control_values(reference, case)
        failed = self._judge_baseline(case).failed
        if failed is not None:
            raise _reference_failure(failed, InputMode.STANDARD)
        if self._is_short:
            case.forget_expected()

    def _control_values(self, reference: ReferenceModel, case: _Case) -> None:
        # Where memory is short, without the expected output beside the reference's temporaries. If it is too short for
        # that, the baseline's answer will show whether the reference agrees with itself.
        repeats = _guarded(lambda: controls.repeats_itself(reference, case.inputs)) if self.is_frugal else False
        expected = case.expected
        if self.is_frugal and any(map(controls.is_number, expected.trusted)):
            case.drawn.forget()  # the variations are of other inputs
        variations = _guarded(lambda: controls.variations(reference, expected))
        self.tolerance = replace(self.tolerance, variations=variations)
        self._usual = tuple(expected.allowances(self.tolerance))
        if repeats is False:
            _guarded(lambda: controls.check_repeatable(reference, case.inputs, expected, self.tolerance))
        controls.check_worthless(expected, self.tolerance)
        self._measure_traits(reference, case.inputs, expected)

    def _control_distribution(self, randomness: _Randomness, case: _Case) -> None:
        # How a random answer depends on inputs and precision is checked in each call.
        sent = tuple(tensors_in(case.inputs))
        controls.check_distribution(case.expected, lambda: randomness.draw(sent), self.tolerance.rtol)

    def verify(self, reference: ReferenceModel, phase: str, trials: int) -> None:
        """Run ``trials`` calls of the candidate in each mode that suits the problem.

        Raises:
            SessionEnded: For the first call that does not pass.
        """
        large, modes = reference.call_bytes > LARGE, self._modes()
        for mode in modes if phase == "before" or not large else modes[:1]:
            for index in range(min(trials, FEW_TRIALS[mode]) if large else trials):
                if not self._trial(reference, mode, phase, index):
                    break

    def judge_timed(self, client: WorkerClient, result: CallResult, expected: ExpectedOutput) -> CallJudgement:
        """Compare all outputs of a timed call.

        Raises:
            SessionEnded: If it does not pass.
        """
        judgement = self._judge(client, _Case(DrawnInputs(list), lambda: expected), result)
        if client.role is Role.CANDIDATE:
            self._note(judgement, InputMode.STANDARD, len(self.trials), "timed")
        if judgement.failed is not None:
            raise _blamed(client, judgement.failed)
        return judgement

    def glance(self, client: WorkerClient, result: CallResult) -> None:
        """Check the call's memory and some random numbers of each output: none may still hold the fill pattern.

        Integers and booleans may have all bits set, so an output of these fails only if several are read and all do.

        Raises:
            SessionEnded: If an output was not written, or anything else was.
        """
        self._check_memory(client, result)
        unwritten_flags = [self._is_unwritten(output) for output in result.outputs]
        # Read once, since a GPU waits for the host each time.
        for index, unwritten in enumerate(torch.stack(unwritten_flags).tolist() if unwritten_flags else ()):
            if unwritten:
                message = f"output {index} still holds the pattern its buffer was filled with: it was not written"
                raise self._blame(client, result, Status.NONFINITE, Evidence(message=message, output=index))

    def _check_memory(self, client: WorkerClient, result: CallResult) -> None:
        """Check that the call wrote to no input, and to nothing outside of its buffers."""
        written = self._reference.written if self._reference is not None and self._job.mutates_inputs else ()
        failed = redzones.failure_of(result.damage) or inputs_check.failure_of(result.sent, result.inputs, written)
        if failed is not None:
            raise self._blame(client, result, failed.status, failed.evidence)

    def _blame(self, client: WorkerClient, result: CallResult, status: Status, evidence: Evidence) -> SessionEnded:
        """Make the error for a timed call that fails a short check."""
        failed = CheckFailure(status, evidence)
        return _blamed(client, with_rank(failed, self._job.ranks, len(result.sent), len(result.outputs)))

    def _is_unwritten(self, output: torch.Tensor) -> torch.Tensor:
        """Return True if the sample of ``output`` shows that it was not written."""
        few = output.numel() <= GLANCED
        unwritten = all_bits_set(output if few else output[self._places(output)])
        if output.is_floating_point() or output.is_complex():
            return unwritten.any()
        return unwritten.all() & (output.numel() > 1)

    def spot(self, client: WorkerClient, result: CallResult, reference: ReferenceModel, inputs: List[Any]) -> None:
        """Compare some numbers of each output, at unpredictable places, with the reference's.

        The reference runs in the cell's own dtype, and :data:`SPOT_MARGIN` times the tolerance is allowed. Results that
        a call left out, or took from an earlier one, are wrong by far and at many places; a full comparison finds the
        rest. Outputs that follow a contract, or are random, need not match number by number, so they get a glance.

        Raises:
            SessionEnded: If more than :data:`SPOT_STRAYS` of them are off.
        """
        if self._job.contract is not None or self._job.random:
            self.glance(client, result)
            return
        self._check_memory(client, result)
        answers = _guarded(lambda: reference.answer(inputs))
        for index, (output, answer) in enumerate(zip(result.outputs, answers)):
            places = self._places(output)
            off = self._off(output[places], answer[places], self._usual[index])
            if off > SPOT_STRAYS:
                message = f"output {index}: {off:.1%} of the numbers looked at in a timed call are beyond tolerance"
                raise self._blame(client, result, Status.INCORRECT_VALUES, Evidence(message=message, output=index))

    @staticmethod
    def _off(got: torch.Tensor, want: torch.Tensor, usual: AllowedError) -> float:
        """Return the share of numbers that differ from a reference in the same precision by more than rounding."""
        if not want.is_floating_point():
            return float((got != want).double().mean()) if want.numel() else 0.0
        have, wanted = got.double(), want.double()
        allowed = SPOT_MARGIN * (usual.everywhere + usual.rtol * wanted.abs())
        wrong = ~((have - wanted).abs() <= allowed) & torch.isfinite(wanted)
        return float(wrong.double().mean()) if want.numel() else 0.0

    def _measure_traits(self, reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput) -> None:
        """Measure sensitivity and precision, which only affect labels, unless an earlier cell of this judge has."""
        facts = self._facts
        if facts.sensitivity is None:
            self._find_facts(facts, reference, inputs, expected)
        self.labels += facts.labels
        self._traits = replace(
            self._traits,
            sensitivity=facts.sensitivity or (),
            rejects_lower_precision=facts.rejects_lower_precision,
        )
        if controls.is_lost_in_rounding(expected, self.tolerance) and INSENSITIVE not in self.labels:
            self.labels.append(INSENSITIVE)

    def _find_facts(
        self, facts: WorkloadFacts, reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput
    ) -> None:
        changes = _guarded(lambda: controls.sensitivity(reference, inputs, expected)) or ()
        rejected = _guarded(lambda: controls.rejects_lower_precision(reference, inputs, expected, self.tolerance))
        if rejected is False and InputMode.EXACT in self._modes() and self._job.protocol.trials > WIDE_FROM:
            rejected = _guarded(lambda: controls.rejects_lower_precision_exactly(reference)) or False
        if any(change < controls.INSENSITIVE_BELOW for change in changes):
            facts.labels.append(INSENSITIVE)
        if rejected is False:
            facts.labels.append(PRECISION_BLIND)
        modes = self._modes()
        if _guarded(lambda: controls.is_input_accepted(reference, inputs, expected, self.tolerance, modes)):
            facts.labels.append(INPUT_ACCEPTED)
        facts.sensitivity, facts.rejects_lower_precision = changes, rejected

    def _modes(self) -> Tuple[InputMode, ...]:
        """Return the modes that suit the problem: inputs that must keep their range, or are integers, stay as drawn.

        Random outputs never equal others, so exact inputs do not help there. Modes are left out that would break
        properties of all the problem's own inputs.
        """
        fixed = not self._job.outliers or self._job.dtype in WHOLE_DTYPES
        unsuited = {InputMode.OUTLIER, InputMode.EXACT} if fixed else {InputMode.EXACT} if self._job.random else set()
        return tuple(mode for mode in self._job.protocol.modes if mode not in {*unsuited, *self._left_out})

    def _trial(self, reference: ReferenceModel, mode: InputMode, phase: str, index: int) -> bool:
        """Run one trial of the candidate; return True if another one in this mode would help.

        All large objects in here are freed before the next inputs are drawn.
        """
        first = mode is InputMode.STANDARD and phase == "before" and index == 0
        held, self._first = self._first, None
        case = held if first and held is not None else self._case(reference, mode, phase, index)
        if mode is InputMode.EXACT:
            if not controls.is_finite(case.expected):
                return False  # this problem cannot take zeros and ones
            self._traits = replace(self._traits, exact=case.exact and self._traits.exact is not False)
        outputs = self._try(case, index, phase)
        if first:
            self._try_again(case, outputs)
        return mode is not InputMode.EXACT or case.exact

    def _case(self, reference: ReferenceModel, mode: InputMode, phase: str, index: int) -> _Case:
        if mode is InputMode.EXACT:
            case = self._draw(
                reference, mode, phase, index, IntegerRange.WIDE if index >= WIDE_FROM else IntegerRange.SIGNED
            )
            if case.exact:
                return case
            del case  # there may be too little memory for two cases
        return self._draw(reference, mode, phase, index)

    def _draw(
        self,
        reference: ReferenceModel,
        mode: InputMode,
        phase: str,
        index: int,
        whole: IntegerRange = IntegerRange.ONES,
    ) -> _Case:
        drawn = drawn_inputs(reference, mode, phase, index, whole=whole)
        case = _Case(drawn, lambda: _guarded(lambda: reference.expect(drawn.values)), mode)
        case.exact = mode is InputMode.EXACT and controls.is_whole(case.expected, self._job.dtype, case.inputs)
        return case

    def _try(self, case: _Case, index: int, phase: str) -> Optional[Tuple[torch.Tensor, ...]]:
        """Run one trial of the candidate; return its outputs, unless memory is too short to keep them."""
        judgement, result = self._call(self._side(Role.CANDIDATE), case)
        judgement = self._compare_with_baseline(case, judgement)
        self._note(judgement, case.mode, index, phase)
        if judgement.failed is not None:
            raise SessionEnded(judgement.failed.status, Stage.VERIFY, judgement.failed.evidence).at(
                mode=case.mode.value, trial=index
            )
        return None if self._is_short else result.outputs

    def _try_again(self, case: _Case, before: Optional[Tuple[torch.Tensor, ...]]) -> None:
        """Run a second call on equal inputs: it must keep the tolerance; equal bits are only a trait.

        Without the outputs ``before`` the trait stays unknown.
        """
        judgement, result = self._call(self._side(Role.CANDIDATE), case)
        if judgement.failed is not None:
            message = f"a second call on equal inputs fails where the first passed: {judgement.failed.evidence.message}"
            evidence = replace(judgement.failed.evidence, message=message, mode=InputMode.STANDARD.value, trial=0)
            differs = judgement.failed.status in _OF_VALUES and not self._job.random
            raise SessionEnded(Status.NONDETERMINISTIC if differs else judgement.failed.status, Stage.VERIFY, evidence)
        if before is not None:
            self._traits = replace(self._traits, deterministic=all(map(same_bits, before, result.outputs)))

    def _compare_with_baseline(self, case: _Case, judgement: CallJudgement) -> CallJudgement:
        """Check that the baseline gets these values right, before the candidate is blamed.

        If outliers take the baseline slightly beyond the tolerance, the candidate may be :data:`WORST` times as far
        off: these inputs are not the problem's own, and they ask too much of the dtype.

        Raises:
            SessionEnded: ``invalid_problem`` if the baseline fails.
        """
        if case.mode is InputMode.STANDARD or judgement.failed is None or judgement.failed.status not in _OF_VALUES:
            return judgement  # the controls have checked the baseline on such inputs
        baselines = self._judge_baseline(case)
        if baselines.failed is None:
            return judgement
        ratio, theirs = _beyond_tolerance(judgement), _beyond_tolerance(baselines)
        if case.mode is not InputMode.OUTLIER or theirs > HARD:
            raise _reference_failure(baselines.failed, case.mode)
        if HARD_OUTLIERS not in self.labels:
            self.labels.append(HARD_OUTLIERS)
        share = ratio / (WORST * theirs)
        return replace(judgement, failed=None, error_ratio=share) if share <= 1 else judgement

    def _judge_baseline(self, case: _Case) -> CallJudgement:
        return self._call(self._side(Role.BASELINE), case)[0]

    def _call(self, client: WorkerClient, case: _Case) -> Tuple[CallJudgement, CallResult]:
        if self._is_short:
            case.forget_expected()
        like = self._like if self._is_short else case.expected.trusted
        client.deliver_drawn(case.drawn, like, frugal=self.is_frugal)
        result = client.call(stage=Stage.VERIFY)
        is_large = self._reference is not None and self._reference.call_bytes > LARGE
        if self._is_short or (is_large and client.role is Role.CANDIDATE):
            client.park()  # the judge's own temporaries need not fit beside its buffers and caches
        return self._judge(client, case, result), result

    def _lacks_room(self, reference: ReferenceModel, copies_bytes: int) -> bool:
        """Return True if the cell's memory does not hold copies of inputs and outputs of ``copies_bytes``.

        The reference's temporaries, and what :data:`RESERVE_BYTES` are for, take room too.
        """
        needed_bytes = copies_bytes + reference.temporary_bytes + RESERVE_BYTES
        reading = reference.platform.device_memory()
        return reading is not None and needed_bytes > min(reading[1], self._job.device_memory_bytes or reading[1])

    def _judge(self, client: WorkerClient, case: _Case, result: CallResult) -> CallJudgement:
        claimed = result.claim.outputs
        call = CheckedCall(
            claim=result.claim,
            outputs=result.outputs if claimed and all(output.copied for output in claimed) else (),
            expected=self._with_known_errors(case.expected),
            tolerance=self.tolerance,
            inputs_sent=result.sent,
            inputs_now=result.inputs,
            mutates_inputs=self._job.mutates_inputs,
            exact=case.exact,
            contract=self._contract(client),
            random=None if self._randomness is None else self._randomness.draw(result.sent, client.name),
            damage=result.damage,
        )
        judgement = self._judge_again(call, judge_call(call), case.mode)
        if judgement.failed is not None:
            failed = with_rank(judgement.failed, self._job.ranks, len(result.sent), len(call.expected.outputs))
            judgement = replace(judgement, failed=failed)
        if client.role is Role.CANDIDATE:
            self._qualities += judgement.quality
        return judgement

    def _with_known_errors(self, expected: ExpectedOutput) -> ExpectedOutput:
        """Allow the trusted implementation's error on the first inputs, if none is known on these.

        With too little memory for a higher precision, the expected output is the trusted implementation's own.
        """
        if expected.outputs is not expected.trusted or not self._usual:
            return expected
        pairs = zip(expected.allowances(self.tolerance), self._usual)
        return replace(expected, _allowances={self.tolerance: tuple(mine.eased(usual) for mine, usual in pairs)})

    def _judge_again(self, call: CheckedCall, judgement: CallJudgement, mode: InputMode) -> CallJudgement:
        """Judge again, if values are nearly correct, with the trusted implementation's error on other inputs."""
        for index in range(EASINGS):
            eased = self._eased(call, mode, index) if _is_nearly_right(judgement) else None
            if eased is None:
                break
            call = replace(call, expected=eased)
            judgement = judge_call(call)
        return judgement

    def _eased(self, call: CheckedCall, mode: InputMode, index: int) -> Optional[ExpectedOutput]:
        reference = self._reference
        if reference is None:
            return None
        return _guarded(lambda: controls.eased(reference, call.expected, self.tolerance, mode, index))

    def _contract(self, client: WorkerClient) -> Optional[ContractSpec]:
        """Return the contract for this contestant: a rival need not quantise, and the baseline has none."""
        contract = self._job.contract
        if contract is None or client.role is Role.BASELINE:
            return None
        return contract if client.role is Role.CANDIDATE else replace(contract, snr_db_max=math.inf)

    def _places(self, output: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Return indices of at most :data:`GLANCED` numbers of ``output``, one tensor per dimension."""
        generator = torch.Generator(output.device).manual_seed(self._dice.getrandbits(63))
        count = min(GLANCED, output.numel())
        return tuple(
            torch.randint(max(size, 1), (count,), device=output.device, generator=generator) for size in output.shape
        )

    def _note(self, judgement: CallJudgement, mode: InputMode, index: int, phase: str) -> None:
        passed = judgement.failed is None
        trial = Trial(mode, index, phase, passed, finite(judgement.max_error), finite(judgement.error_ratio))
        self.trials.append(trial)

    def _side(self, role: Role) -> WorkerClient:
        return next(client for client in self._clients.values() if client.role is role)


_OF_VALUES = frozenset({Status.INCORRECT_VALUES, Status.NONFINITE, Status.CONTRACT_BROKEN})


def _guarded(function: Callable[[], Found]) -> Found:
    """Run the reference while verifying; see :func:`guarded`."""
    found: Found = guarded("the reference", Stage.VERIFY, function)
    return found


def _refilled(form: List[Any], tensors: Sequence[torch.Tensor]) -> List[Any]:
    """Return ``form`` with ``tensors`` instead of its own, in the order of :func:`tensors_in`."""
    places = itertools.count()
    filled: List[Any] = map_tensors(form, lambda _tensor: tensors[next(places)])
    return filled


def _is_nearly_right(judgement: CallJudgement) -> bool:
    failed, ratio = judgement.failed, judgement.error_ratio
    return failed is not None and failed.status is Status.INCORRECT_VALUES and ratio is not None and ratio <= NEAR


def _beyond_tolerance(judgement: CallJudgement) -> float:
    """Return by how many tolerances nearly correct outputs are off; infinity if anything else is wrong."""
    ratio = judgement.error_ratio if _is_nearly_right(judgement) else None
    return ratio if ratio is not None and ratio > 1 else math.inf


def _reference_failure(failed: CheckFailure, mode: InputMode) -> SessionEnded:
    message = f"the reference fails against itself: {failed.evidence.message}"
    return SessionEnded(
        Status.INVALID_PROBLEM, Stage.VERIFY, replace(failed.evidence, message=message, mode=mode.value)
    )


def _blamed(client: WorkerClient, failed: CheckFailure) -> SessionEnded:
    """Blame the contestant for a timed call; a failure of the baseline is the problem's fault."""
    status = Status.INVALID_PROBLEM if client.role is Role.BASELINE else failed.status
    return SessionEnded(status, Stage.TIME, failed.evidence)
