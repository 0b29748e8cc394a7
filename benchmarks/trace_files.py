"""Kernels in the form of definition, workloads and solution that SOL-ExecBench and FlashInfer-Bench read.

The reference and the kernel keep their sources; a function ``run`` at their ends calls the module. Every size of a
tensor is an axis that the workload sets, and inputs are random, as these harnesses draw them. Not a benchmark of its
own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpu_runs import load_module
from mixed_kernels import MixedKernel

from kernel_matrix.sources import Problem

OUTPUT = "output"
_RUN = """

_model = {model}()


def run({names}):
    return _model({names})
"""


def trace_files(
    kernel: MixedKernel, problem: Problem, workloads: Sequence[str], build: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Return definition, workloads and solution of a kernel.

    Args:
        kernel: the kernel.
        problem: its problem, whose ``Model`` has no arguments and one output.
        workloads: names of the shape sets.
        build: how a solution in this kernel's language is built, in the harness's words.
    """
    shapes = {name: dict(_tensors(problem, name)) for name in workloads}
    tensors = shapes[workloads[0]]
    inputs = [name for name in tensors if name != OUTPUT]
    described = {
        name: {"shape": list(_axes(name, tensor)), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in tensors.items()
    }
    names = ", ".join(inputs)
    definition = {
        "name": problem.id,
        "op_type": problem.id,
        "axes": {axis: {"type": "var"} for one in described.values() for axis in one["shape"]},
        "inputs": {name: described[name] for name in inputs},
        "outputs": {OUTPUT: described[OUTPUT]},
        "reference": problem.path.read_text(encoding="utf-8") + _RUN.format(model="Model", names=names),
    }
    drawn = [
        {
            "uuid": f"{problem.id}-{workload}",
            "axes": {axis: size for name, tensor in found.items() for axis, size in _axes(name, tensor).items()},
            "inputs": {name: {"type": "random"} for name in inputs},
        }
        for workload, found in shapes.items()
    ]
    solution = {
        "name": f"{problem.id}_{kernel.name}",
        "definition": problem.id,
        "author": "kernel-matrix",
        "spec": {"entry_point": "kernel.py::run", "destination_passing_style": False, **build},
        "sources": [{"path": "kernel.py", "content": kernel.source + _RUN.format(model="ModelNew", names=names)}],
    }
    return definition, drawn, solution


def _tensors(problem: Problem, workload: str) -> Iterator[tuple[str, Any]]:
    """Yield names of inputs and the output with tensors of their shapes and dtypes, which have no memory."""
    import torch  # noqa: PLC0415  # only two harnesses need it here

    module = load_module(problem.path)
    vars(module).update(next(one.values for one in problem.workloads if one.name == workload))
    with torch.device("meta"):
        inputs = module.get_inputs()
        yield from zip(list(inspect.signature(module.Model.forward).parameters)[1:], inputs, strict=True)
        yield OUTPUT, module.Model()(*inputs)


def _axes(name: str, tensor: Any) -> dict[str, int]:
    return {f"{name}_{place}": size for place, size in enumerate(tensor.shape)}
