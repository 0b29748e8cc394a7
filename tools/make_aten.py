"""Write the catalogue ``problems/aten.json``: operators of PyTorch's OpInfo database as problems, with their calls.

Run it by hand, with torch and NumPy installed, when the images move to another version of PyTorch::

    python tools/make_aten.py                  # all operators, ten minutes on one core
    python tools/make_aten.py --only add,sum   # update only these operators

Each operator is tried in a forked process with a time limit. Its samples must pass the judge's controls of problems
(:meth:`kernel_matrix.inside.judge.verification.Verifier.controls`) on the CPU, with the module staged as in a cell.
The catalogue lists the operators that fail with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import json
import math
import os
import random
import re
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernel_matrix.inside import input_generation
from kernel_matrix.inside.input_generation import tensors_in
from kernel_matrix.inside.judge.bits import same_bits
from kernel_matrix.inside.judge.controls import INSENSITIVE_BELOW
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, MAX_FROM_WORKER, Channel
from kernel_matrix.inside.worker.service import serve
from kernel_matrix.model.enums import Dtype, InputMode, Role
from kernel_matrix.model.messages import ContestantSpec, JudgeJob, JudgeTimeouts, ProtocolSpec, WorkloadSpec
from kernel_matrix.sources.aten.reader import TEMPLATE, module_source

FORMAT = 1
TIME_LIMIT_S = 25.0
"""Time limit of one operator."""
SAMPLES = 200
"""Most samples of an operator that are read."""
MOST_TRIES = 10
"""Most samples that are checked until one passes the controls."""
FEW, MANY = 16, 100_000
"""Numbers in the result of a good ``smoke`` sample: enough to be meaningful, and few enough to be fast."""
MIN_FINITE_SHARE = 0.75
"""Least share of finite numbers in the result of a good sample."""
SEEDS = tuple(f"{index:032x}" for index in range(8))
"""Seeds on which a call must pass the controls.

The determinant of a few rows, or a comparison of a few numbers, passes on some draws only, and the draws of a cell are
secret.
"""
FLOATING = (Dtype.FP32, Dtype.FP64, Dtype.FP16, Dtype.BF16)

ADAPTER = import_file(TEMPLATE, "kernel_matrix_aten_template", {})

CONTESTANTS = (
    ContestantSpec("candidate", Role.CANDIDATE, "problem.py", "Model"),
    ContestantSpec("eager", Role.BASELINE, "problem.py", "Model"),
)
NAMES = tuple(contestant.name for contestant in CONTESTANTS)


class LeftOutError(Exception):
    """The operator cannot be a problem."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = " ".join(detail.split())[:200]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sample of an operator with its arguments in the order of the function's parameters."""

    call: dict[str, Any]
    positional: list[Any]
    named: dict[str, Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors in the arguments."""
        return tensors_in([self.positional, list(self.named.values())])

    @property
    def size(self) -> int:
        """Number of elements of the tensors."""
        return sum(tensor.numel() for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Checked:
    """Facts about a call that passed the controls."""

    sensitivity: tuple[float, ...]
    view: bool


# ---- large calls

Dimension = Any
"""A size, or a pair: the size, and a smaller one for checking the call."""

ROWS, SIDE = (16384, 64), (4096, 64)
SQUARE = ((8192, 128), (8192, 128))
IMAGE = (32, 4)


def numbers(*shape: Dimension, low: float = -1.0, high: float = 1.0, dtype: str = "float") -> dict[str, Any]:
    """Describe a tensor of uniform numbers from ``low`` to ``high``."""
    return {"tensor": list(shape), "dtype": dtype, "low": low, "high": high}


def whole(*shape: Dimension, high: Dimension) -> dict[str, Any]:
    """Describe a tensor of indices below ``high``."""
    return {"tensor": list(shape), "dtype": "int64", "low": 0, "high": high}


TABLE = numbers(ROWS, 4096)
BATCH = (numbers((64, 2), (1024, 64), 1024), numbers((64, 2), 1024, (1024, 64)))

LARGE: dict[str, tuple[list[Any], dict[str, Any]]] = {
    **{name: ([TABLE], {"dim": 1}) for name in ("softmax", "log_softmax", "cumsum", "logcumsumexp")},
    **{name: ([TABLE], {"dim": 1}) for name in ("nn.functional.softmin", "cummax", "cummin", "sort", "argsort")},
    **{name: ([TABLE], {"dim": 1}) for name in ("masked.softmax", "masked.log_softmax", "masked.softmin")},
    **{name: ([TABLE], {"dim": 1}) for name in ("nn.functional.normalize", "masked.cumsum", "nn.functional.glu")},
    **{name: ([TABLE, 1], {}) for name in ("max.reduction_with_dim", "min.reduction_with_dim", "median", "fft.fft")},
    **{name: ([TABLE, [1]], {}) for name in ("flip", "std_mean", "var_mean")},
    "fft.rfft": ([TABLE, 4096, 1], {}),
    "topk": ([TABLE, 16, 1], {}),
    "kthvalue": ([TABLE, 16, 1], {}),
    "roll": ([TABLE, 7, 1], {}),
    **{name: ([numbers(*SQUARE)], {}) for name in ("clone", "nan_to_num", "nn.functional.hardshrink")},
    "logsumexp": ([numbers((4194304, 4096), 16, low=-9, high=9)], {"dim": 1}),
    "tril": ([TABLE], {}),
    "triu": ([TABLE], {}),
    "msort": ([numbers(4096, ROWS)], {}),
    "mm": ([numbers(SIDE, 4096), numbers(4096, SIDE)], {}),
    "matmul": ([numbers(SIDE, 4096), numbers(4096, SIDE)], {}),
    "__rmatmul__": ([numbers(4096, SIDE), numbers(SIDE, 4096)], {}),
    "addmm": ([numbers(SIDE), numbers(SIDE, 4096), numbers(4096, SIDE)], {}),
    "nn.functional.linear": ([numbers(SIDE, 4096), numbers(SIDE, 4096), numbers(SIDE)], {}),
    "inner": ([numbers(SIDE, 4096), numbers(SIDE, 4096)], {}),
    "tensordot": ([numbers(SIDE, 4096), numbers(4096, SIDE)], {"dims": 1}),
    "einsum": (["ij,jk->ik", [numbers(SIDE, 4096), numbers(4096, SIDE)]], {}),
    "mv": ([TABLE, numbers(4096)], {}),
    "addmv": ([numbers(ROWS), TABLE, numbers(4096)], {}),
    "addr": ([numbers(*SQUARE), numbers(SQUARE[0]), numbers(SQUARE[1])], {}),
    "outer": ([numbers(SQUARE[0]), numbers(SQUARE[1])], {}),
    "bmm": ([*BATCH], {}),
    "baddbmm": ([numbers((64, 2), (1024, 64), (1024, 64)), *BATCH], {}),
    "cdist": ([numbers(SIDE, 256), numbers(SIDE, 256)], {}),
    "nn.functional.scaled_dot_product_attention": ([numbers(IMAGE, 16, (1024, 64), 64) for _ in range(3)], {}),
    "nn.functional.conv1d": ([numbers(IMAGE, 128, (4096, 64)), numbers(256, 128, 5)], {"padding": 2}),
    "nn.functional.conv2d": ([numbers(IMAGE, 128, (56, 14), (56, 14)), numbers(128, 128, 3, 3)], {"padding": 1}),
    "nn.functional.conv3d": ([numbers((8, 1), 32, 32, (32, 8), (32, 8)), numbers(32, 32, 3, 3, 3)], {"padding": 1}),
    "nn.functional.conv_transpose2d": ([numbers(IMAGE, 64, (56, 8), (56, 8)), numbers(64, 64, 3, 3)], {"stride": 2}),
    "nn.functional.layer_norm": ([TABLE, [4096], numbers(4096), numbers(4096)], {}),
    "nn.functional.rms_norm": ([TABLE, [4096], numbers(4096)], {}),
    "nn.functional.group_norm": ([numbers((64, 2), 256, (64, 16), 64), 32, numbers(256), numbers(256)], {}),
    "nn.functional.instance_norm": ([numbers((64, 2), (256, 16), 64, 64)], {}),
    "nn.functional.batch_norm": (
        [numbers((64, 4), 256, (64, 8), 64), numbers(256), numbers(256, low=0.5), numbers(256), numbers(256)],
        {},
    ),
    "nn.functional.avg_pool2d": ([numbers((64, 2), (64, 4), 112, 112), 3, 2], {}),
    "nn.functional.max_pool2d": ([numbers((64, 2), (64, 4), 112, 112), 3, 2], {}),
    "nn.functional.adaptive_avg_pool2d": ([numbers((64, 2), (256, 4), 56, 56), [7, 7]], {}),
    "nn.functional.interpolate.bilinear": (
        [numbers((64, 2), (64, 4), 56, 56)],
        {"scale_factor": 2.0, "mode": "bilinear", "align_corners": False},
    ),
    "nn.functional.interpolate.nearest": (
        [numbers((64, 2), (64, 4), 56, 56)],
        {"scale_factor": 2.0, "mode": "nearest"},
    ),
    "nn.functional.pixel_shuffle": ([numbers((64, 2), 256, (64, 8), 64), 2], {}),
    "nn.functional.pixel_unshuffle": ([numbers((64, 2), 64, (128, 8), 128), 2], {}),
    "nn.functional.cross_entropy": ([TABLE, whole(ROWS, high=4096)], {"reduction": "none"}),
    "nn.functional.nll_loss": ([TABLE, whole(ROWS, high=4096)], {"reduction": "none"}),
    "nn.functional.mse_loss": ([numbers(*SQUARE), numbers(*SQUARE)], {"reduction": "none"}),
    "nn.functional.l1_loss": ([numbers(*SQUARE), numbers(*SQUARE)], {"reduction": "none"}),
    "nn.functional.smooth_l1_loss": ([numbers(*SQUARE), numbers(*SQUARE)], {"reduction": "none"}),
    "nn.functional.huber_loss": ([numbers(*SQUARE), numbers(*SQUARE)], {"reduction": "none"}),
    "nn.functional.cosine_similarity": ([TABLE, TABLE], {"dim": 1}),
    "nn.functional.pairwise_distance": ([TABLE, TABLE], {}),
    "nn.functional.embedding": ([whole(ROWS, high=(50_000, 500)), numbers((50_000, 500), 1024)], {}),
    "index_select": ([numbers((50_000, 500), 1024), 0, whole(ROWS, high=(50_000, 500))], {}),
    "index_add": ([numbers((4096, 64), 1024), 0, whole(ROWS, high=(4096, 64)), numbers(ROWS, 1024)], {}),
    "gather": ([TABLE, 1, whole(ROWS, 4096, high=4096)], {}),
    "scatter_add": ([numbers(ROWS, 512), 1, whole(ROWS, 4096, high=512), TABLE], {}),
    "take_along_dim": ([TABLE, whole(ROWS, 4096, high=4096), 1], {}),
    "where": ([numbers(*SQUARE, low=0, high=2, dtype="bool"), numbers(*SQUARE), numbers(*SQUARE)], {}),
    "masked_fill": ([numbers(*SQUARE), numbers(*SQUARE, low=0, high=2, dtype="bool"), 0.5], {}),
    "cat": ([[numbers(*SQUARE), numbers(*SQUARE)]], {"dim": 1}),
    "stack": ([[numbers(*SQUARE), numbers(*SQUARE)]], {"dim": 1}),
    "transpose_copy": ([numbers(*SQUARE), 0, 1], {}),
    "repeat": ([numbers(SIDE, 4096), [2, 2]], {}),
    "tile": ([numbers(SIDE, 4096), [2, 2]], {}),
    "constant_pad_nd": ([TABLE, [3, 5]], {"value": 1.5}),
    "trapezoid": ([TABLE], {"dim": 1}),
    "diff": ([TABLE], {"dim": 1}),
}
"""Operator and variant → call large enough to measure on a large GPU; other operators get one by their kind."""

OVERFLOWING = frozenset({"prod", "masked.prod"})
"""Reductions that overflow over many numbers."""

FLOPS = dict.fromkeys(
    ("mm", "matmul", "__rmatmul__", "addmm", "nn.functional.linear", "inner", "tensordot", "einsum"),
    2.0 * SIDE[0] ** 2 * 4096,
)
"""FLOPs of large calls that multiply two square matrices."""


def large_forms(name: str, kind: str, like: Sampled) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield pairs of a large call and a smaller one for checking it, the best one first."""
    function = like.call["function"]
    if name in LARGE:
        positional, named = LARGE[name]
        yield from (_make_pair({"function": function, "positional": positional, "named": named}),)
    elif kind == "elementwise":
        tensors = iter(like.tensors)
        yield _make_pair(_with_tensors(like.call, lambda: _similar(next(tensors), *SQUARE)))
    elif kind == "reduction" and name not in OVERFLOWING:
        for shape in ((ROWS, 4096), ((262144, 1024), 256)):
            table = _similar(like.tensors[0], *shape)
            yield _make_pair({"function": function, "positional": [table], "named": {"dim": 1}})


def _similar(tensor: torch.Tensor, *shape: Dimension) -> dict[str, Any]:
    """Describe a tensor of this shape, with the range from which ``tensor`` was drawn, or else that of its values."""
    low, high = float(tensor.min()), float(tensor.max())
    recorded = _draw_ranges.get(tensor.untyped_storage().data_ptr())
    # The recorded range may be that of an earlier tensor at the same address.
    if recorded is not None and recorded[0] <= low and high <= recorded[1]:
        low, high = recorded
    return numbers(*shape, low=low, high=high) if low < high else numbers(*shape)


def _make_pair(call: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return _choose_sizes(call, 0), _choose_sizes(call, 1)


def _choose_sizes(value: Any, which: int) -> Any:
    if isinstance(value, dict):
        return {key: _choose_sizes(item, which) for key, item in value.items()}
    if isinstance(value, list):
        return [_choose_sizes(item, which) for item in value]
    return value[which] if isinstance(value, tuple) else value


def _with_tensors(call: dict[str, Any], make: Any) -> dict[str, Any]:
    """Return ``call`` with every tensor replaced."""

    def replaced(value: Any) -> Any:
        if isinstance(value, dict) and "tensor" in value:
            return make()
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        return [replaced(item) for item in value] if isinstance(value, list) else value

    changed: dict[str, Any] = replaced(call)
    return changed


# ---- samples

_draw_ranges: dict[int, tuple[float, float]] = {}


def record_draw_ranges() -> None:
    """Record the range from which each floating tensor of a sample is drawn."""
    from torch.testing import _creation  # noqa: PLC0415  # private, but all draws use it

    draw = _creation._uniform_random_

    def noted(tensor: torch.Tensor, low: float, high: float) -> torch.Tensor:
        _draw_ranges[tensor.untyped_storage().data_ptr()] = (float(low), float(high))
        result: torch.Tensor = draw(tensor, low, high)
        return result

    _creation._uniform_random_ = noted


def sampled_dtypes(operator: Any) -> list[str]:
    """Return the dtypes for samples, the best one first.

    Raises:
        LeftOutError: the operator takes neither real nor whole numbers.
    """
    offered = operator.supported_dtypes("cpu")
    dtypes = [name for dtype, name in ((torch.float32, "float"), (torch.int32, "int32")) if dtype in offered]
    if not dtypes:
        raise LeftOutError("dtype", "takes neither real nor whole numbers")
    return dtypes


def collect(operator: Any, dtype: torch.dtype, function: str = "") -> list[Sampled]:
    """Return the different calls among the first samples.

    Raises:
        LeftOutError: none has a JSON form and a tensor.
    """
    found: dict[str, Sampled] = {}
    reasons: Counter[LeftOutKey] = Counter()
    torch.manual_seed(1)
    random.seed(1)
    for positional, named in itertools.islice(ADAPTER.samples(operator, "cpu", dtype), SAMPLES):
        try:
            call = {"function": function, "positional": ADAPTER.encode(positional, dtype), "named": {}}
            call["named"] = {name: ADAPTER.encode(value, dtype) for name, value in named.items()}
        except ADAPTER.NotPlainError as error:
            reasons["argument", str(error)] += 1
            continue
        tensors = tensors_in([positional, named])
        if not tensors or not any(tensor.numel() for tensor in tensors):
            reasons["no tensor", "no argument is a tensor with elements"] += 1
            continue
        found.setdefault(_signature(call), Sampled(call, positional, named))
    if not found:
        raise LeftOutError(*(reasons.most_common(1)[0][0] if reasons else ("no sample", "the database has none")))
    return list(found.values())


LeftOutKey = tuple[str, str]


def _signature(call: dict[str, Any]) -> str:
    """Return a key that is equal for calls that differ only in floats, because the adapter finds the first of them."""

    def blurred(value: Any) -> Any:
        if isinstance(value, float):
            return 0.5
        if isinstance(value, dict):
            return {key: blurred(item) for key, item in value.items()}
        return [blurred(item) for item in value] if isinstance(value, list) else value

    return json.dumps(blurred(call), sort_keys=True)


# ---- the function


def find_function(operator: Any, sample: Sampled) -> tuple[str, bool]:
    """Find a public function with the results of the operator, and whether its first two arguments are swapped.

    Raises:
        LeftOutError: there is none, or the operator does not return tensors.
    """
    wanted = _call(operator.op, sample.positional, sample.named)
    name = operator.name
    tails = dict.fromkeys([name, name.removeprefix("torch."), f"ops.aten.{name}", f"Tensor.{name}"])
    tails |= dict.fromkeys([f"ops.aten.{operator.aten_name}", f"Tensor.{name}.__get__"])
    for path, swapped in itertools.product((f"torch.{tail}" for tail in tails), (False, True)):
        positional = list(sample.positional)
        if swapped:
            positional[:2] = positional[1::-1]
        with contextlib.suppress(Exception):
            got = _call(ADAPTER.function_at(path), positional, sample.named)
            if len(got) == len(wanted) and all(map(same_bits, got, wanted)):
                return path, swapped
    raise LeftOutError("no function", "no function of torch has the results of the operator")


def _call(function: Any, positional: list[Any], named: dict[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(7)
    positional, named = copy.deepcopy(positional), copy.deepcopy(named)
    try:
        with torch.no_grad():
            returned = function(*positional, **named)
    except Exception as error:
        raise LeftOutError("fails", f"{type(error).__name__}: {error}") from error
    listed = [returned] if isinstance(returned, torch.Tensor) else returned
    if not isinstance(listed, (list, tuple)) or not listed or not all(type(t) is torch.Tensor for t in listed):
        raise LeftOutError("output", f"returns {type(returned).__name__}, not tensors")
    if any(t.layout is not torch.strided for t in listed):
        raise LeftOutError("output", "returns sparse tensors")
    return list(listed)


def as_call_of(sample: Sampled, function: str, *, swapped: bool) -> Sampled:
    """Return the sample as a call of ``function``."""
    call, positional = {**sample.call, "function": function}, list(sample.positional)
    if swapped:
        call["positional"] = [*call["positional"][1::-1], *call["positional"][2:]]
        call["swapped"] = True
        positional[:2] = positional[1::-1]
    return Sampled(call, positional, sample.named)


# ---- the controls


@contextlib.contextmanager
def verification_session(folder: Path, job: JudgeJob, values: dict[str, Any], names: tuple[str, ...]) -> Iterator[Any]:
    """Set up a verifier and its reference like in a session, with workers in threads."""
    reference = ReferenceModel(folder / "problem.py", values, "cpu", job.dtype, job.seed)
    with contextlib.ExitStack() as undo:
        sides: dict[str, WorkerClient] = {}
        for contestant in job.contestants:
            if contestant.name in names:
                channel = undo.enter_context(_serve_worker(folder))
                side = sides[contestant.name] = WorkerClient(contestant, channel, "cpu", job.timeouts)
                undo.callback(side.close)
                side.open()
                side.load(values)
                side.construct(reference, 0)
        yield Verifier(job, sides, random.Random(1)), reference  # the seed need not be secret here


@contextlib.contextmanager
def _serve_worker(folder: Path) -> Iterator[Channel]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    thread = threading.Thread(target=serve, args=(Channel(theirs, MAX_FROM_JUDGE), folder, "cpu"), daemon=True)
    thread.start()
    try:
        yield Channel(ours, MAX_FROM_WORKER)
    finally:
        ours.close()
        thread.join(5)
        theirs.close()


def make_job(dtype: Dtype, **changes: Any) -> JudgeJob:
    """Make a job to verify one call."""
    return replace(
        JudgeJob(
            cell_id="c" * 32,
            session=0,
            device="cpu",
            dtype=dtype,
            seed=SEEDS[0],
            workloads=(WorkloadSpec("smoke", {}),),
            protocol=ProtocolSpec(trials=2),
            timeouts=JudgeTimeouts(load_s=20, first_call_s=20, call_s=20),
            contestants=CONTESTANTS,
        ),
        **changes,
    )


def check(folder: Path, call: dict[str, Any], dtype: Dtype) -> Checked:
    """Run the controls of one call on every seed.

    Raises:
        LeftOutError: with the kind of the failure.
    """
    values = {"CALL": json.dumps(call)}
    try:
        with verification_session(folder, make_job(dtype), values, ("eager",)) as (verifier, reference):
            _check_inputs(reference)
            verifier.controls(reference)
            if _finite_share(reference.answer(reference.draw(InputMode.STANDARD, "finite"))) < MIN_FINITE_SHARE:
                raise LeftOutError("nonfinite", "too much of the result is not finite")
            probe = reference.draw(InputMode.STANDARD, "another view")
            expected = reference.expect(probe)
            _check_dependence(reference, expected.trusted)
            learnt = Checked(verifier.traits.sensitivity, any(expected.views))
        for seed in SEEDS[1:]:
            with verification_session(folder, make_job(dtype, seed=seed), values, ("eager",)) as (verifier, reference):
                verifier.controls(reference)
    except SessionEnded as found:
        raise LeftOutError(_classify(found), found.evidence.message) from None
    return learnt


def _check_inputs(reference: ReferenceModel) -> None:
    if reference._writes:  # noqa: SLF001  # no other user needs it
        raise LeftOutError("writes", "writes into its inputs")
    one, same, other = (tensors_in(reference.draw(InputMode.STANDARD, which)) for which in ("one", "one", "other"))
    if not all(map(same_bits, one, same)):
        raise LeftOutError("inputs", "equal seeds draw different inputs")
    if all(a.shape == b.shape and bool(same_bits(a, b)) for a, b in zip(one, other, strict=True)):
        raise LeftOutError("inputs", "the sample's tensors are constants")


def _check_dependence(reference: ReferenceModel, answer: tuple[torch.Tensor, ...]) -> None:
    others = [reference.answer(reference.draw(InputMode.STANDARD, "dependence", index)) for index in range(4)]
    if all(
        a.shape == b.shape and bool(same_bits(a, b)) for other in others for a, b in zip(other, answer, strict=True)
    ):
        raise LeftOutError("worthless", "the result does not depend on the inputs")
    if any(a.shape != b.shape for other in others for a, b in zip(other, answer, strict=True)):
        raise LeftOutError("shape", "the shape of the result depends on the inputs")


def _classify(found: SessionEnded) -> str:
    message = found.evidence.message
    if "differs between two runs" in message:
        return "random"
    if "would pass" in message:
        return "worthless"
    return "fails"


def allows_outliers(folder: Path, call: dict[str, Any]) -> bool:
    """Return True if the call passes with outliers and with exact inputs."""
    try:
        with verification_session(folder, make_job(Dtype.FP32), {"CALL": json.dumps(call)}, NAMES) as (
            verifier,
            reference,
        ):
            input_generation.OUTLIER_PROBABILITY = 0.2  # the samples are small, and one raising element is enough
            usual = _finite_share(reference.expect(reference.draw(InputMode.STANDARD, "finite")).trusted)
            rough = _finite_share(reference.expect(reference.draw(InputMode.OUTLIER, "finite")).trusted)
            verifier.controls(reference)
            verifier.verify(reference, "before", 2)
    except Exception:  # noqa: BLE001  # an operator may raise anything on unusual inputs
        return False
    return rough > usual - 0.1


def _finite_share(tensors: tuple[torch.Tensor, ...]) -> float:
    flags = [torch.isfinite(tensor).double().mean() for tensor in tensors if tensor.numel()]
    return min(map(float, flags), default=1.0)


# ---- kinds of operators


def is_elementwise(sample: Sampled) -> bool:
    """Return True if each element of the result depends only on the inputs' elements at its own place."""
    tensors = [v for v in (*sample.positional, *sample.named.values()) if isinstance(v, torch.Tensor)]
    shapes = {tuple(t.shape) for t in tensors}
    if len(shapes) != 1 or tensors[0].numel() < 4 or not all(t.is_floating_point() for t in tensors):
        return False
    if len(sample.tensors) != len(tensors):
        return False
    order = torch.randperm(tensors[0].numel(), generator=torch.Generator().manual_seed(3))
    lost = torch.zeros(1, dtype=torch.int64)

    def shuffled(value: Any) -> Any:
        # One number is also changed, because a sum over all is the same in any order.
        return value.reshape(-1)[order].index_fill(0, lost, 0.25) if isinstance(value, torch.Tensor) else value

    function = ADAPTER.function_at(sample.call["function"])
    try:
        straight = _call(function, sample.positional, sample.named)
        named = {name: shuffled(value) for name, value in sample.named.items()}
        mixed = _call(function, [shuffled(value) for value in sample.positional], named)
    except LeftOutError:
        return False
    shape = next(iter(shapes))
    if any(tuple(a.shape) != shape or b.numel() != a.numel() for a, b in zip(straight, mixed, strict=False)):
        return False
    if any(same_bits(a, tensor) for a in straight for tensor in tensors if a.dtype is tensor.dtype):
        return False  # an operator that moves numbers, on a sample where it moves none
    return len(straight) == len(mixed) and all(
        torch.allclose(a.reshape(-1)[order][1:], b[1:], rtol=1e-6, atol=1e-7, equal_nan=True)
        for a, b in zip(straight, mixed, strict=True)
    )


CATEGORIES = (
    ("Loss", r"loss|cross_entropy|kl_div"),
    ("Pooling", r"pool"),
    ("Convolution", r"conv\dd|conv_transpose"),
    ("Fusion", r"attention|embedding_bag|linear_cross"),
    ("Normalization", r"(batch|group|instance|layer|response|rms)_norm|softmax|softmin|normalize|renorm"),
    ("SpatialOps", r"interpolate|upsample|grid_sampl|pixel_|unfold|channel_shuffle|\.pad\b|constant_pad|rot90|affine"),
    ("Activation", r"relu|elu\b|silu|sigmoid|gelu|mish|softsign|shrink|hardtanh|hardswish|softplus|\.glu|threshold"),
    (
        "MatrixMultiply",
        (
            r"\bb?mm\b|matmul|addb?mm|baddbmm|\bmv\b|addmv|addr\b|\bdot\b|vdot|inner|outer|kron|tensordot|einsum|linear$"
            r"|bilinear$|multi_dot|_scaled_mm|sampled_addmm"
        ),
    ),
    (
        "LinearAlgebra",
        (
            r"linalg|cholesky|\bqr\b|\blu|svd|geqrf|ormqr|triangular_solve|pinverse|logdet|matrix_exp|pca_|trace$|cdist"
            r"|\bdist$|pdist|corrcoef|\bcov$|cross$|pairwise_distance|cosine_similarity|vander"
        ),
    ),
    (
        "Index",
        (
            r"index|gather|scatter|take|embedding|where|masked_(fill|select|scatter)|select|slice|narrow|diag|tril|triu|flip"
            r"|roll|permute|transpose|\bt\b|t_copy|reshape|view|squeeze|expand|split|chunk|cat$|stack|repeat|tile|flatten"
            r"|unbind|sort|topk|kthvalue|unique|searchsorted|bucketize|nonzero|as_strided|movedim|swap|meshgrid|ravel|atleast"
            r"|__getitem__|one_hot|put|fftshift|ifftshift|mH|mT|\bH$|\bT$|broadcast|clone|contiguous|alias"
        ),
    ),
)


LOCAL = ("Math", "Activation", "Loss")
"""Categories with elementwise operators; samples of other categories may only look elementwise."""

REDUCING = (
    r"^((max|min)\.reduction_\w+|(masked\.)?(median|logsumexp)|nanmedian|mode|aminmax|std_mean.*|var_mean.*|norm(\..*)?"
    r"|(nan)?quantile|linalg\.(vector_|matrix_)?norm.*|trace)$"
)
"""Reductions that the database does not list as such."""


def category_of(operator: Any) -> str:
    """Return the problem category of an operator."""
    name = operator.name
    for category, pattern in CATEGORIES[:5]:
        if re.search(pattern, name):
            return category
    if type(operator).__name__ == "ReductionOpInfo" or re.search(REDUCING, full_name(operator)):
        return "Reduce"
    return next((category for category, pattern in CATEGORIES[5:] if re.search(pattern, name)), "Math")


# ---- one operator


def describe(operator: Any, folder: Path) -> dict[str, Any]:
    """Return the operator's entry in the catalogue.

    Raises:
        LeftOutError: it cannot be a problem.
    """
    if re.search(RANDOM, operator.name):
        raise LeftOutError("random", "the result is random")
    if re.search(BEYOND, operator.name):
        raise LeftOutError("memory", "uses memory outside of its input")
    first, *others = sampled_dtypes(operator)
    try:
        return describe_sampled(operator, folder, first)
    except LeftOutError as error:
        if error.kind == "worthless" and others:  # drawn real numbers are practically never equal or zero
            with contextlib.suppress(LeftOutError):
                return describe_sampled(operator, folder, others[0])
        raise


def describe_sampled(operator: Any, folder: Path, sampled: str) -> dict[str, Any]:
    """Return the operator's entry from samples of one dtype.

    Raises:
        LeftOutError: they make no problem.
    """
    found = collect(operator, torch.float32 if sampled == "float" else getattr(torch, sampled))
    function, swapped = _find_function(operator, found)
    found = [as_call_of(sample, function, swapped=swapped) for sample in found]
    module = module_source(operator.name, operator.variant_test_name, sampled)
    (folder / "problem.py").write_text(module, encoding="utf-8")
    first = Dtype.FP32 if sampled == "float" else Dtype.INT32
    smoke, checked = _find_smoke(folder, sorted(found, key=_rank), first)
    further = _find_further(folder, [s for s in found if s is not smoke], first)
    dtypes = [first, *(d for d in FLOATING[1:] if sampled == "float" and _passes(folder, smoke.call, d))]
    category = category_of(operator)
    local = sampled == "float" and category in LOCAL
    elementwise = next(filter(is_elementwise, found), None) if local else None
    reduces = type(operator).__name__ == "ReductionOpInfo"
    kind = "reduction" if reduces else "elementwise" if elementwise else ""
    calls, cost = {"smoke": smoke.call}, dict[str, float]()
    if further is not None:
        calls["sample"] = further.call
    large = (
        None
        if checked.view or sampled != "float"
        else _find_large(folder, operator, kind, elementwise or smoke, dtypes)
    )
    if large is not None:
        calls["default"], cost = large
    return {
        "name": operator.name,
        "variant": operator.variant_test_name,
        "sampled": sampled,
        "category": category,
        "tags": [*filter(None, [kind]), *(["view"] if checked.view else [])],
        "dtypes": [d.value for d in dtypes],
        "outliers": sampled == "float" and allows_outliers(folder, smoke.call),
        "calls": calls,
        **({"cost": cost} if cost else {}),
    }


RANDOM = (
    r"dropout|rrelu|fractional|bernoulli|multinomial|^rand|^normal|uniform|cauchy|^exponential|geometric|log_normal"
)
"""Random operators; they are excluded by name, because some of their samples are not random."""

BEYOND = r"^as_strided|^resize_"
"""Operators that can use memory outside of a tensor."""


def _find_function(operator: Any, found: list[Sampled]) -> tuple[str, bool]:
    reason: LeftOutError | None = None
    for sample in found[:MOST_TRIES]:
        try:
            return find_function(operator, sample)
        except LeftOutError as error:  # noqa: PERF203  # a handful
            reason = reason or error
    raise reason or LeftOutError("no sample")


def _rank(sample: Sampled) -> tuple[bool, int]:
    """Return a sort key: samples with many results first, those that raise last, else the order of the database."""
    try:
        answer = _call(ADAPTER.function_at(sample.call["function"]), sample.positional, sample.named)
    except LeftOutError:
        return (True, 0)
    return (sample.size > MANY, -min(FEW, sum(tensor.numel() for tensor in answer)))


def _find_smoke(folder: Path, found: list[Sampled], dtype: Dtype) -> tuple[Sampled, Checked]:
    reasons: list[LeftOutError] = []
    for sample in found[:MOST_TRIES]:
        try:
            return sample, check(folder, sample.call, dtype)
        except LeftOutError as error:  # noqa: PERF203  # a handful
            reasons.append(error)
    raise reasons[0]


def _find_further(folder: Path, found: list[Sampled], dtype: Dtype) -> Sampled | None:
    """Find the largest other sample that passes."""
    for sample in sorted(found, key=lambda s: s.size, reverse=True)[:2]:
        if FEW < sample.size <= MANY and _passes(folder, sample.call, dtype):
            return sample
    return None


def _passes(folder: Path, call: dict[str, Any], dtype: Dtype) -> bool:
    try:
        check(folder, call, dtype)
    except Exception:  # noqa: BLE001  # an operator may raise anything for a dtype it has no form for
        return False
    return True


def _find_large(
    folder: Path, operator: Any, kind: str, like: Sampled, dtypes: list[Dtype]
) -> tuple[dict[str, Any], dict[str, float]] | None:
    """Return the large call and its cost, or ``None`` if no large call passes in every dtype."""
    name = full_name(operator)
    for call, small in large_forms(name, kind, like):
        try:
            checked = check(folder, small, dtypes[0])
        except Exception:  # noqa: BLE001  # an operator may raise anything for unusual arguments
            continue
        if all(_passes(folder, small, dtype) for dtype in dtypes[1:]):
            return call, _compute_cost(name, call, checked)
    return None


def _compute_cost(name: str, call: dict[str, Any], checked: Checked) -> dict[str, float]:
    """Return the minimum of numbers in the cell's dtype and of further bytes that a call moves, and its FLOPs."""
    values, rest, places = 0, 0, iter(checked.sensitivity)
    for spec in _tensor_specs(call):
        count = math.prod(spec["tensor"])
        if spec["dtype"] != "float":
            rest += count * int(getattr(torch, spec["dtype"]).itemsize)
        elif next(places, 0.0) >= INSENSITIVE_BELOW:
            values += count
    if name in CHOOSING:
        values, rest = 0, 0
    for output in _meta_outputs(call):
        if output.dtype in (torch.float32, torch.complex64):
            values += output.numel() * (2 if output.is_complex() else 1)
        else:
            rest += output.numel() * output.element_size()
    cost: dict[str, float] = {"numbers": values, "bytes": rest}
    return {**cost, "flops": FLOPS[name]} if name in FLOPS else cost


# fmt: off
CHOOSING = frozenset({
    "gather", "index_select", "nn.functional.embedding", "take_along_dim", "tril", "triu", "where", "masked_fill",
    "nn.functional.nll_loss", "scatter_add", "index_add", "nn.functional.max_pool2d", "nn.functional.avg_pool2d",
    "nn.functional.interpolate.nearest", "copysign", "fill",
})
# fmt: on
"""Operators that do not read all of their inputs."""


def _tensor_specs(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "tensor" in value:
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensor_specs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _tensor_specs(item)


def _meta_outputs(call: dict[str, Any]) -> list[torch.Tensor]:
    """Return the outputs of a call on the meta device, without computing them."""
    module = import_file(TEMPLATE, "kernel_matrix_aten_cost", {"CALL": json.dumps(call)})

    def hollow(value: Any) -> Any:
        if isinstance(value, list):
            return [hollow(item) for item in value]
        if isinstance(value, dict) and "tensor" in value:
            dtype = torch.float32 if value["dtype"] == "float" else getattr(torch, value["dtype"])
            return torch.empty(value["tensor"], dtype=dtype, device="meta")
        return value

    given = [*call["positional"], *call["named"].values()]
    inputs = [hollow(value) for value in given if next(_tensor_specs(value), None) is not None]
    try:
        returned = module.Model(*module.get_init_inputs())(*inputs)
    except Exception:  # noqa: BLE001  # some operators do not support the meta device
        return []
    return tensors_in([returned])


# ---- all of them


def main() -> int:
    """Write the catalogue, and print the result of each operator and the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="names of operators, separated by commas; default: all")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "problems" / "aten.json")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    operators, wanted = ADAPTER.database(), set(filter(None, arguments.only.split(",")))
    record_draw_ranges()
    found = read_catalogue(arguments.out) if wanted else {}
    for operator in operators:
        name = full_name(operator)
        if not wanted or name in wanted or name not in found:
            began = time.monotonic()
            found[name] = describe_in_child(operator)
            became = " ".join(found[name].get(key, "") for key in ("kind", "detail")).strip() or "in"
            print(f"{time.monotonic() - began:6.2f} s  {name}: {became}", flush=True)
    entries, left_out = sort_entries({full_name(operator): found[full_name(operator)] for operator in operators})
    arguments.out.write_text(format_catalogue(entries, left_out), encoding="utf-8")
    print(f"{len(entries)} operators of {len(operators)}; left out:", {k: len(v) for k, v in left_out.items()})
    return 0


def read_catalogue(path: Path) -> dict[str, dict[str, Any]]:
    """Return full name → entry of the present catalogue, including the operators left out."""
    catalogue = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"operators": [], "left_out": {}}
    kept = {".".join(filter(None, (entry["name"], entry["variant"]))): entry for entry in catalogue["operators"]}
    for kind, names in catalogue["left_out"].items():
        kept |= {name: {"kind": kind, "detail": detail} for name, detail in names.items()}
    return kept


def sort_entries(found: dict[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, dict[str, str]]]:
    """Separate the problems from the operators left out (kind → name → reason); repeated calls are left out."""
    entries: list[dict[str, Any]] = []
    left_out: dict[str, dict[str, str]] = {}
    known: dict[str, str] = {}
    for name, entry in found.items():
        twin = known.setdefault(json.dumps(entry["calls"]), name) if "calls" in entry else name
        if "kind" in entry:
            left_out.setdefault(entry["kind"], {})[name] = entry["detail"]
        elif twin != name:
            left_out.setdefault("same", {})[name] = f"its calls are those of {twin}"
        else:
            entries.append(entry)
    return entries, left_out


def full_name(operator: Any) -> str:
    """Return the name, followed by a dot and the variant if there is one."""
    return ".".join(filter(None, (operator.name, operator.variant_test_name)))


def format_catalogue(entries: list[dict[str, Any]], left_out: dict[str, dict[str, str]]) -> str:
    """Return the catalogue as JSON with one operator per line."""
    head = {"format": FORMAT, "torch": torch.__version__}
    lines = ",\n".join("  " + json.dumps(entry, separators=(",", ":")) for entry in entries)
    rest = json.dumps({kind: left_out[kind] for kind in sorted(left_out)}, indent=1)
    return f'{json.dumps(head)[:-1]},\n"operators": [\n{lines}\n],\n"left_out": {rest}}}\n'


def describe_in_child(operator: Any) -> dict[str, Any]:
    """Run :func:`describe` in a process, because operators may crash or hang."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _report_from_child(writer, operator)
    os.close(writer)
    text, deadline = b"", time.monotonic() + TIME_LIMIT_S
    with os.fdopen(reader, "rb") as answers:
        while True:
            ready, _, _ = select.select([answers], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(answers.fileno(), 1 << 16) if ready else b""
            text += piece
            if not piece:
                break
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, ended = os.waitpid(child, 0)
    if text:
        entry: dict[str, Any] = json.loads(text)
        return entry
    detail = "took too long" if not ready else f"its process ended with {ended}"
    return {"kind": "crash", "detail": detail}


def _report_from_child(writer: int, operator: Any) -> None:
    """Describe the operator in the child process, send the entry and exit."""
    with open(os.devnull, "w") as nothing:  # noqa: PTH123  # only the descriptor is used
        os.dup2(nothing.fileno(), 2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            entry = describe(operator, Path(folder))
    except LeftOutError as error:
        entry = {"kind": error.kind, "detail": error.detail}
    except BaseException as error:  # noqa: BLE001  # the child must not continue as its parent
        entry = {"kind": "fails", "detail": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    text = json.dumps(entry).encode()
    while text:
        text = text[os.write(writer, text) :]
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
