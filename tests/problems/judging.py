"""Judges candidates in this process with the core's own reference and checks; run as a script by test_candidates.py.

``python judging.py REQUESTS`` with a JSON list of (candidate path, problem path, values, dtype, contract or null,
outliers, random, ranks); prints a JSON list of statuses. It is for candidates that do no harm to the process they run
in. Several ranks are threads, of which one runs at a time; they share memory as the peers of a GPU do.
"""

import itertools
import json
import sys
from pathlib import Path

import torch

from kernel_matrix.inside.input_generation import WHOLE_DTYPES, IntegerRange, map_tensors, place_model, tensors_in
from kernel_matrix.inside.judge.checks import CheckedCall, judge_call
from kernel_matrix.inside.judge.checks.distribution import RandomOutputs
from kernel_matrix.inside.judge.controls import accepts, check_varying, is_finite, is_whole
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.memory import dtype_name
from kernel_matrix.inside.source_module import MODULE_SEED, import_file
from kernel_matrix.inside.wire import OutputClaim, OutputsClaim, Structure
from kernel_matrix.model.enums import Dtype, InputMode
from kernel_matrix.model.messages import ContractSpec
from tests.problems.rank_threads import AllRanks

__all__ = ["WHOLE_DTYPES", "ReferenceModel", "Tolerance", "accepts", "judge", "lots", "modes_of"]

SECRET = "0" * 32
SEEDS = itertools.count()
"""One for each call that is judged by its distribution: none may be judged by the same chances as another."""


def modes_of(dtype, *, outliers, random=False):
    """The modes that a verification has."""
    modes = tuple(InputMode) if outliers and dtype not in WHOLE_DTYPES else (InputMode.STANDARD,)
    return tuple(mode for mode in modes if not random or mode is not InputMode.EXACT)


def lots(reference, inputs, expected, earlier):
    """What one call with random outputs is judged with; ``earlier`` is the same for all calls of a candidate."""
    return RandomOutputs(
        again=lambda: reference.answer(inputs),
        varies=check_varying(reference, inputs, expected),
        seed=str(next(SEEDS)),
        start=0.5,
        earlier=earlier,
    )


def judge(request):
    """The status that one candidate earns."""
    candidate, problem, values, dtype, contract, outliers, random, ranks = request
    reference = ReferenceModel(Path(problem), values, "cpu", Dtype(dtype), SECRET, ranks=ranks)
    models = [_construct(candidate, reference) for _ in range(ranks)]
    model = models[0] if ranks == 1 else AllRanks(models)
    spec = None if contract is None else ContractSpec(**contract)
    earlier = {} if random else None
    for mode in modes_of(Dtype(dtype), outliers=outliers, random=random):
        for trial in range(len(IntegerRange)):
            failed = _try(model, reference, mode, trial, (spec, earlier))
            if failed is not None:
                return failed.status.value
    return "passed"


def _construct(candidate, reference):
    module = import_file(Path(candidate), "candidate_" + Path(candidate).stem, {})
    torch.manual_seed(MODULE_SEED)
    model = place_model(module.ModelNew(*reference.init_arguments), "cpu", reference.dtype)
    model.load_state_dict(reference.state)
    return model


def _try(model, reference, mode, trial, terms):
    contract, earlier = terms
    numbers = tuple(IntegerRange)[trial]
    inputs = reference.draw(mode, trial, whole=numbers)
    expected = reference.expect(inputs)
    whole = mode is InputMode.EXACT and is_whole(expected, reference.dtype)
    if mode is InputMode.EXACT and not (whole or (is_finite(expected) and numbers is IntegerRange.ONES)):
        return None
    given = map_tensors(inputs, torch.clone)
    with torch.no_grad():
        returned = model(*given)
    outputs = (returned,) if isinstance(returned, torch.Tensor) else tuple(returned)
    structure = Structure.TENSOR if isinstance(returned, torch.Tensor) else Structure.TUPLE
    claims = (OutputClaim(dtype_name(t.dtype), tuple(t.shape), same_device=True, copied=True) for t in outputs)
    call = CheckedCall(
        claim=OutputsClaim(structure, tuple(claims)),
        outputs=outputs,
        expected=expected,
        tolerance=Tolerance.of(reference.dtype, {}),
        inputs_sent=tuple(tensors_in(inputs)),
        inputs_now=tuple(tensors_in(given)),
        mutates_inputs=bool(expected.written),
        exact=whole,
        contract=contract,
        random=None if earlier is None else lots(reference, inputs, expected, earlier),
    )
    return judge_call(call).failed


if __name__ == "__main__":
    requests = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps([judge(request) for request in requests]))
