"""Judges candidates in this process with the core's own reference and tolerance; run as a script by test_problems.py.

``python judging.py REQUESTS`` with a JSON list of (candidate path, problem path, values, dtype); prints
a JSON list of statuses. It is for candidates that do no harm to the process they run in.
"""

import json
import sys
from pathlib import Path

import torch

from runner.core.checks.values import compare
from runner.core.reference import Reference
from runner.core.sourcefile import import_file
from runner.core.tolerance import Tolerance
from runner.core.vocab import Dtype, Mode

SECRET = "0" * 32


def accepts(outputs, expected, tolerance):
    """Whether ``outputs`` would pass for what the reference returns."""
    triples = zip(outputs, expected.outputs, expected.trusted, strict=True)
    return not any(compare(got, want, same, tolerance).mismatched for got, want, same in triples)


def judge(candidate, problem, values, dtype):
    """The status that one candidate earns."""
    reference = Reference(Path(problem), values, "cpu", Dtype(dtype), SECRET)
    model = _construct(candidate, reference)
    for mode in Mode:
        for trial in range(2):
            status = _try(model, reference, reference.draw(mode, trial), Tolerance.of(Dtype(dtype), {}))
            if status != "passed":
                return status
    return "passed"


def _construct(candidate, reference):
    module = import_file(Path(candidate), "candidate_" + Path(candidate).stem, {})
    torch.manual_seed(42)
    model = module.ModelNew(*reference.init_arguments)
    model.load_state_dict(reference.state)
    return model.to(next(iter(reference.state.values())).dtype) if reference.state else model


def _try(model, reference, inputs, tolerance):
    expected = reference.expect(inputs)
    before = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        returned = model(*inputs)
    outputs = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    if len(outputs) != len(expected.outputs):
        return "incorrect_structure"
    for output, trusted in zip(outputs, expected.trusted, strict=True):
        if output.shape != trusted.shape:
            return "incorrect_shape"
        if output.dtype != trusted.dtype:
            return "incorrect_dtype"
    if not all(map(torch.equal, before, inputs)):
        return "input_modified"
    if not all(output.isfinite().all() for output in outputs):
        return "nonfinite"
    return "passed" if accepts(outputs, expected, tolerance) else "incorrect_values"


if __name__ == "__main__":
    requests = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps([judge(*request) for request in requests]))
