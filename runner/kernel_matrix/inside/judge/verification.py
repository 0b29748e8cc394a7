"""Verification of one workload: the problem's own controls, the candidate's trials, and the checks of timed calls."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar

import torch

from kernel_matrix.inside.input_generation import WHOLE_DTYPES, IntegerRange, map_tensors, tensors_in
from kernel_matrix.inside.judge import controls
from kernel_matrix.inside.judge.bits import all_bits_set, same_bits
from kernel_matrix.inside.judge.checks import CallJudgement, CheckedCall, CheckFailure, judge_call
from kernel_matrix.inside.judge.checks.distribution import RandomOutputs
from kernel_matrix.inside.judge.checks.values import finite
from kernel_matrix.inside.judge.quality import Quality, worst_of
from kernel_matrix.inside.judge.reference import ExpectedOutput, ReferenceModel, guarded
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.tolerance import CAP, WORST, AllowedError, Tolerance
from kernel_matrix.inside.judge.worker_client import CallResult, WorkerClient
from kernel_matrix.inside.wire import OutputsClaim
from kernel_matrix.model.enums import InputMode, Role, Stage, Status
from kernel_matrix.model.messages import ContractSpec, Evidence, JudgeJob, Traits, Trial

Found = TypeVar("Found")

INSENSITIVE = "insensitive"
"""Label: the answer hardly depends on an input, so that skipping it might pass."""
PRECISION_BLIND = "precision_blind"
"""Label: the same computation one precision lower would pass too."""
HARD_OUTLIERS = "hard_outliers"
"""Label: on some inputs with outliers the reference is beyond tolerance; :data:`WORST` times as far was let pass."""

GLANCED = 1 << 16
"""Numbers of an output that a glance, or a spot check, looks at."""
SPOT_MARGIN = 8.0
"""Times the tolerance that a spot check allows: its inputs are others than those the tolerance was found on."""
SPOT_STRAYS = 0.01
"""Share of the numbers looked at that may be further off: roundings that fell the other way."""
LARGE = 1 << 30
"""Bytes of inputs and outputs beyond which a mode gets its :data:`FEW_TRIALS`, and one mode is enough after timing."""
FEW_TRIALS = {InputMode.STANDARD: 2, InputMode.OUTLIER: 1, InputMode.EXACT: 2}
EASINGS = 4
"""Further inputs that the trusted implementation is tried on before values that are nearly right are called wrong."""
NEAR = 1.0 + CAP
"""Times the tolerance up to which they are nearly right: beyond, no luck of the trusted one explains it."""
HARD = 4.0
"""Times the tolerance up to which the reference may be off on outliers: beyond, its problem is invalid."""
WIDE_FROM = 1
"""Trials of mode ``exact`` from this one on have wide numbers among the ones, where the answer to them is whole."""


class _Case(NamedTuple):
    """Inputs and what is due for them."""

    inputs: List[Any]
    expected: ExpectedOutput
    mode: InputMode = InputMode.STANDARD
    exact: bool = False


class _Lots:
    """What random outputs are judged with, call by call; of one workload, whose reference and inputs it learns."""

    def __init__(self, reference: ReferenceModel, case: _Case, dice: random.Random) -> None:
        """:raises Finding: ``invalid_problem`` when the reference returns the same in two runs."""
        self._reference = reference
        self._form = map_tensors(case.inputs, _as_meta)
        self._dice = dice
        self._start = dice.random()
        self._varies = _guarded(lambda: controls.check_varying(reference, case.inputs, case.expected))
        self._earlier: Dict[str, Dict[int, torch.Tensor]] = {}

    def draw(self, sent: Sequence[torch.Tensor], contestant: str = "") -> RandomOutputs:
        """For one call.

        :param sent: the tensors among its inputs; all else in these is the same in every call.
        :param contestant: whose earlier calls it must not repeat; empty: nobody's.
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
    """Judges every call of one workload: :meth:`controls` first, then :meth:`verify` before and after the timed calls.

    What it finds wrong is raised as a :class:`~kernel_matrix.inside.judge.session_ended.SessionEnded`: with the status
    that the candidate
    earned, as ``invalid_problem`` for the baseline, and for the caller to make a label of for a rival.
    """

    def __init__(self, job: JudgeJob, sides: Mapping[str, WorkerClient], dice: random.Random) -> None:
        """:param sides: all contestants; the candidate and the baseline are found by their roles."""
        self._job = job
        self._sides = sides
        self._dice = dice
        self._first: Optional[_Case] = None
        self._reference: Optional[ReferenceModel] = None
        self._qualities: List[Quality] = []
        self._usual: Tuple[AllowedError, ...] = ()
        """What each output was allowed on the first inputs."""
        self._lots: Optional[_Lots] = None
        """What random outputs are judged with, once :meth:`controls` knows the reference; null: none is random."""
        self._traits = Traits()
        self.tolerance = Tolerance.of(job.dtype, job.tolerance)
        """What outputs are held to, once :meth:`controls` has seen how long sums are and how far answers vary."""
        self.trials: List[Trial] = []
        """Every compared call of the candidate, in order."""
        self.labels: List[str] = []
        """What does not decide and readers must know: the labels above."""

    @property
    def traits(self) -> Traits:
        """What was found out so far beyond right and wrong."""
        return replace(self._traits, quality=worst_of(self._qualities))

    def controls(self, reference: ReferenceModel) -> None:
        """The problem's own controls, on the first inputs that the candidate will get too.

        The reference must agree with itself, in this process and as the baseline; zeros and a constant must not pass.

        :raises Finding: ``invalid_problem`` or ``problem_error``.
        """
        case = self._first = self._case(reference, InputMode.STANDARD, "before", 0)
        inputs, expected = case.inputs, case.expected
        self._reference = reference
        length = controls.reduction_length(reference, inputs)
        self.tolerance = Tolerance.of(reference.dtype, self._job.tolerance, length)
        if self._job.random:
            self._lots = _Lots(reference, case, self._dice)
            self._control_distribution(self._lots, case)
        else:
            self._control_values(reference, inputs, expected)
        failed = self._judge_baseline(case).failed
        if failed is not None:
            raise _against_itself(failed, InputMode.STANDARD)

    def _control_values(self, reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput) -> None:
        variations = _guarded(lambda: controls.variations(reference, expected))
        self.tolerance = replace(self.tolerance, variations=variations)
        self._usual = tuple(expected.allowances(self.tolerance))
        _guarded(lambda: controls.check_repeatable(reference, inputs, expected, self.tolerance))
        controls.check_worthless(expected, self.tolerance)
        self._look_into(reference, inputs, expected)

    def _control_distribution(self, lots: _Lots, case: _Case) -> None:
        # How far a random answer depends on an input, and on the precision, is what the check of each call looks at.
        sent = tuple(tensors_in(case.inputs))
        controls.check_distribution(case.expected, lambda: lots.draw(sent), self.tolerance.rtol)

    def verify(self, reference: ReferenceModel, phase: str, trials: int) -> None:
        """``trials`` calls of the candidate per mode that makes sense here.

        :raises Finding: for the first call that does not pass.
        """
        large, modes = reference.call_bytes > LARGE, self._modes()
        for mode in modes if phase == "before" or not large else modes[:1]:
            for index in range(min(trials, FEW_TRIALS[mode]) if large else trials):
                if not self._trial(reference, mode, phase, index):
                    break

    def judge_timed(
        self, side: WorkerClient, expected: ExpectedOutput, call: Tuple[CallResult, Tuple[torch.Tensor, ...]]
    ) -> CallJudgement:
        """Compare in full what a timed call left in the side's output buffer.

        :param call: its result, and the inputs as :meth:`WorkerClient.deliver` sent them.
        :raises Finding: when it does not pass.
        """
        judgement, _ = self._judge(side, _Case([], expected), *call)
        if side.role is Role.CANDIDATE:
            self._note(judgement, InputMode.STANDARD, len(self.trials), "timed")
        if judgement.failed is not None:
            raise _blamed(side, judgement.failed)
        return judgement

    def glance(self, side: WorkerClient) -> None:
        """Look at some numbers of each output, drawn by the judge's dice: none may still be what the buffer held.

        Of integers and booleans, which may well have all bits set, not all of several may.

        :raises Finding: when one does.
        """
        looks = [self._look_at(output) for output in side.outputs_now()]
        # Read once: a GPU waits for the host each time.
        for index, unwritten in enumerate(torch.stack(looks).tolist() if looks else ()):
            if unwritten:
                message = f"output {index} still holds the pattern its buffer was filled with: it was not written"
                raise _blamed(side, CheckFailure(Status.NONFINITE, Evidence(message=message, output=index)))

    def _look_at(self, output: torch.Tensor) -> torch.Tensor:
        """Whether what was sampled of ``output`` tells that it was not written."""
        unwritten = all_bits_set(self._sample(output))
        if output.is_floating_point() or output.is_complex():
            return unwritten.any()
        return unwritten.all() & (output.numel() > 1)

    def spot(self, side: WorkerClient, reference: ReferenceModel, inputs: List[Any]) -> None:
        """Compare some numbers of each output, at places that nobody can foresee, with what the reference returns.

        With the reference in the cell's own dtype, and with :data:`SPOT_MARGIN` times the tolerance: what a call left
        out, or took from an earlier one, is wrong by far and at many places; a full comparison is for the rest.

        What is held to a contract, or random, is glanced at: no single number of it has to be near the reference's.

        :raises Finding: when more than :data:`SPOT_STRAYS` of them are off.
        """
        if self._job.contract is not None or self._job.random:
            self.glance(side)
            return
        answers = _guarded(lambda: reference.answer(inputs))
        for index, (output, answer) in enumerate(zip(side.outputs_now(), answers)):
            places = self._places(output)
            off = self._off(output[places], answer[places], self._usual[index])
            if off > SPOT_STRAYS:
                message = f"output {index}: {off:.1%} of the numbers looked at in a timed call are beyond tolerance"
                raise _blamed(side, CheckFailure(Status.INCORRECT_VALUES, Evidence(message=message, output=index)))

    @staticmethod
    def _off(got: torch.Tensor, want: torch.Tensor, usual: AllowedError) -> float:
        """Share of numbers that are further from a reference in the same precision than any rounding explains."""
        if not want.is_floating_point():
            return float((got != want).double().mean()) if want.numel() else 0.0
        have, wanted = got.double(), want.double()
        allowed = SPOT_MARGIN * (usual.everywhere + usual.rtol * wanted.abs())
        wrong = ~((have - wanted).abs() <= allowed) & torch.isfinite(wanted)
        return float(wrong.double().mean()) if want.numel() else 0.0

    def _look_into(self, reference: ReferenceModel, inputs: List[Any], expected: ExpectedOutput) -> None:
        """Sensitivity and precision: nothing depends on them but labels."""
        changes = _guarded(lambda: controls.sensitivity(reference, inputs, expected)) or ()
        told = _guarded(lambda: controls.is_precision_told(reference, inputs, expected, self.tolerance))
        if told is False and InputMode.EXACT in self._modes() and self._job.protocol.trials > WIDE_FROM:
            told = _guarded(lambda: controls.is_precision_told_exactly(reference)) or False
        self._traits = replace(self._traits, sensitivity=changes, rejects_lower_precision=told)
        if any(change < controls.INSENSITIVE_BELOW for change in changes):
            self.labels.append(INSENSITIVE)
        if told is False:
            self.labels.append(PRECISION_BLIND)

    def _modes(self) -> Tuple[InputMode, ...]:
        """The modes that make sense: inputs that must keep their range, or are whole numbers, are taken as drawn.

        Random numbers are never equal to others, so that whole ones say no more of them.
        """
        fixed = not self._job.outliers or self._job.dtype in WHOLE_DTYPES
        senseless = {InputMode.OUTLIER, InputMode.EXACT} if fixed else {InputMode.EXACT} if self._job.random else set()
        return tuple(mode for mode in self._job.protocol.modes if mode not in senseless)

    def _trial(self, reference: ReferenceModel, mode: InputMode, phase: str, index: int) -> bool:
        """One trial of the candidate; whether a further one in this mode would say more.

        Everything large in here is gone when it returns, before the next inputs are drawn.
        """
        first = mode is InputMode.STANDARD and phase == "before" and index == 0
        held, self._first = self._first, None
        case = held if first and held is not None else self._case(reference, mode, phase, index)
        if mode is InputMode.EXACT:
            if not controls.is_finite(case.expected):
                return False  # zeros and ones are no inputs for this problem
            self._traits = replace(self._traits, exact=case.exact and self._traits.exact is not False)
        outputs = self._try(case, index, phase)
        if first:
            self._try_again(case, outputs)
        return mode is not InputMode.EXACT or case.exact

    def _case(self, reference: ReferenceModel, mode: InputMode, phase: str, index: int) -> _Case:
        if mode is InputMode.EXACT:
            telling = self._draw(
                reference, mode, phase, index, IntegerRange.WIDE if index >= WIDE_FROM else IntegerRange.SIGNED
            )
            if telling.exact:
                return telling
            del telling  # two cases need not fit into memory
        return self._draw(reference, mode, phase, index)

    def _draw(
        self,
        reference: ReferenceModel,
        mode: InputMode,
        phase: str,
        index: int,
        whole: IntegerRange = IntegerRange.ONES,
    ) -> _Case:
        inputs = guarded("get_inputs()", Stage.VERIFY, lambda: reference.draw(mode, phase, index, whole=whole))
        expected = _guarded(lambda: reference.expect(inputs))
        return _Case(
            inputs, expected, mode, exact=mode is InputMode.EXACT and controls.is_whole(expected, self._job.dtype)
        )

    def _try(self, case: _Case, index: int, phase: str) -> Tuple[torch.Tensor, ...]:
        """One trial of the candidate; what it returned."""
        judgement, outputs = self._call(self._side(Role.CANDIDATE), case)
        judgement = self._beside_the_baseline(case, judgement)
        self._note(judgement, case.mode, index, phase)
        if judgement.failed is not None:
            raise SessionEnded(judgement.failed.status, Stage.VERIFY, judgement.failed.evidence).at(
                mode=case.mode.value, trial=index
            )
        return outputs

    def _try_again(self, case: _Case, before: Tuple[torch.Tensor, ...]) -> None:
        """A second call on equal inputs: its bits are a trait, but the tolerance must be kept; random ones are new."""
        judgement, outputs = self._call(self._side(Role.CANDIDATE), case)
        if judgement.failed is not None:
            message = f"a second call on equal inputs fails where the first passed: {judgement.failed.evidence.message}"
            evidence = replace(judgement.failed.evidence, message=message, mode=InputMode.STANDARD.value, trial=0)
            differs = judgement.failed.status in _OF_VALUES and not self._job.random
            raise SessionEnded(Status.NONDETERMINISTIC if differs else judgement.failed.status, Stage.VERIFY, evidence)
        self._traits = replace(self._traits, deterministic=all(map(same_bits, before, outputs)))

    def _beside_the_baseline(self, case: _Case, judgement: CallJudgement) -> CallJudgement:
        """Before a candidate is blamed for its values: the baseline must get them right in this mode.

        Where outliers take it a little beyond tolerance, the candidate may be :data:`WORST` times as far off: these
        inputs are not the problem's, and it is no fault of either that they ask too much of the dtype.

        :raises Finding: ``invalid_problem`` when the baseline does not.
        """
        if case.mode is InputMode.STANDARD or judgement.failed is None or judgement.failed.status not in _OF_VALUES:
            return judgement  # the controls have heard it on such inputs
        baselines = self._judge_baseline(case)
        if baselines.failed is None:
            return judgement
        ratio, theirs = _beyond_tolerance(judgement), _beyond_tolerance(baselines)
        if case.mode is not InputMode.OUTLIER or theirs > HARD:
            raise _against_itself(baselines.failed, case.mode)
        self._label(HARD_OUTLIERS)
        share = ratio / (WORST * theirs)
        return replace(judgement, failed=None, error_ratio=share) if share <= 1 else judgement

    def _label(self, label: str) -> None:
        if label not in self.labels:
            self.labels.append(label)

    def _judge_baseline(self, case: _Case) -> CallJudgement:
        return self._call(self._side(Role.BASELINE), case)[0]

    def _call(self, side: WorkerClient, case: _Case) -> Tuple[CallJudgement, Tuple[torch.Tensor, ...]]:
        sent = side.deliver(case.inputs, case.expected.trusted)
        return self._judge(side, case, side.call(stage=Stage.VERIFY), sent)

    def _judge(
        self, side: WorkerClient, case: _Case, result: CallResult, sent: Tuple[torch.Tensor, ...]
    ) -> Tuple[CallJudgement, Tuple[torch.Tensor, ...]]:
        """The judgement on what the side's output buffer holds now, and a copy of that."""
        outputs = side.outputs() if _all_copied(result.claim) else ()
        call = CheckedCall(
            claim=result.claim,
            outputs=outputs,
            expected=case.expected,
            tolerance=self.tolerance,
            inputs_sent=sent,
            inputs_now=side.inputs_now(),
            mutates_inputs=self._job.mutates_inputs,
            exact=case.exact,
            contract=self._contract(side),
            random=None if self._lots is None else self._lots.draw(sent, side.name),
            damage=side.guards_intact(),
        )
        judgement = self._hear_again(call, judge_call(call), case.mode)
        if side.role is Role.CANDIDATE:
            self._qualities += judgement.quality
        return judgement, outputs

    def _hear_again(self, call: CheckedCall, judgement: CallJudgement, mode: InputMode) -> CallJudgement:
        """The judgement, made anew where values are nearly right, by what the trusted implementation errs elsewhere."""
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

    def _contract(self, side: WorkerClient) -> Optional[ContractSpec]:
        """Only the candidate must quantise; the reference is what it is compared with, and a rival may do either."""
        contract = self._job.contract
        if contract is None or side.role is Role.BASELINE:
            return None
        return contract if side.role is Role.CANDIDATE else replace(contract, snr_db_max=math.inf)

    def _sample(self, output: torch.Tensor) -> torch.Tensor:
        """Numbers of ``output`` at places that nobody can foresee."""
        return output[self._places(output)]

    def _places(self, output: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Indices of at most :data:`GLANCED` numbers of ``output``, one tensor per dimension."""
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
        return next(side for side in self._sides.values() if side.role is role)


_OF_VALUES = frozenset({Status.INCORRECT_VALUES, Status.NONFINITE, Status.CONTRACT_BROKEN})


def _guarded(function: Callable[[], Found]) -> Found:
    """As :func:`guarded`, of the reference while verifying."""
    found: Found = guarded("the reference", Stage.VERIFY, function)
    return found


def _as_meta(_tensor: torch.Tensor) -> torch.Tensor:
    """A place for a tensor, without memory."""
    return torch.empty(0, device="meta")


def _refilled(form: List[Any], tensors: Sequence[torch.Tensor]) -> List[Any]:
    """``form`` with ``tensors`` in place of those in it, in the order that :func:`tensors_in` finds them."""
    places = itertools.count()
    filled: List[Any] = map_tensors(form, lambda _tensor: tensors[next(places)])
    return filled


def _all_copied(claim: OutputsClaim) -> bool:
    return bool(claim.outputs) and all(output.copied for output in claim.outputs)


def _is_nearly_right(judgement: CallJudgement) -> bool:
    failed, ratio = judgement.failed, judgement.error_ratio
    return failed is not None and failed.status is Status.INCORRECT_VALUES and ratio is not None and ratio <= NEAR


def _beyond_tolerance(judgement: CallJudgement) -> float:
    """Times the tolerance that outputs are off by which are nearly right; infinite where something else is wrong."""
    ratio = judgement.error_ratio if _is_nearly_right(judgement) else None
    return ratio if ratio is not None and ratio > 1 else math.inf


def _against_itself(failed: CheckFailure, mode: InputMode) -> SessionEnded:
    message = f"the reference fails against itself: {failed.evidence.message}"
    return SessionEnded(
        Status.INVALID_PROBLEM, Stage.VERIFY, replace(failed.evidence, message=message, mode=mode.value)
    )


def _blamed(side: WorkerClient, failed: CheckFailure) -> SessionEnded:
    """A timed call that does not pass; the baseline's is the problem's fault."""
    status = Status.INVALID_PROBLEM if side.role is Role.BASELINE else failed.status
    return SessionEnded(status, Stage.TIME, failed.evidence)
