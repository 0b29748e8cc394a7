"""All ranks of a problem in the judge's one process: a thread per rank, and collectives that copy between threads.

A problem with several ranks has a ``Model`` and ``get_inputs()`` of one rank, which call ``torch.distributed``. The
judge needs what every rank should get, in float64 too, without other processes. :func:`with_all_ranks` makes a module
whose ``get_inputs()`` returns the arguments of all ranks, those of rank 0 first, and whose ``Model`` returns the
outputs of all ranks in that order. All ranks have the same parameters.

Sums are taken in the order of ranks, in the dtype of the tensors. Process groups other than the default one, and
messages between two ranks, are not supported.
"""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from kernel_matrix.inside.input_generation import tensors_in
from kernel_matrix.inside.rank_parts import parts_of_ranks

_REDUCTIONS: Dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,  # divided at the end
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.MIN: torch.minimum,
}


class RankError(RuntimeError):
    """The ranks of a problem do not take part in the same collectives, or use one that is not supported."""


class _Meeting:
    """Exchanges values between the threads of all ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._changed = threading.Condition()
        self._given: Dict[int, Tuple[str, Any]] = {}
        self._left: Dict[int, str] = {}  # ranks that take part no more, and why
        self._mixed = ""  # different collectives that ranks have called
        self._last: List[Any] = []
        self._count = 0  # of exchanges

    def exchange(self, rank: int, name: str, value: Any) -> List[Any]:
        """Give ``value``, and return those of all ranks, in order, once all have called this.

        Raises:
            RankError: If another rank calls another collective, or has ended.
        """
        with self._changed:
            number = self._count
            self._given[rank] = (name, value)
            if len(self._given) == self.ranks:
                self._complete()
            self._changed.wait_for(lambda: self._count > number or bool(self._left) or bool(self._mixed))
            if self._count > number:
                return self._last
            if self._mixed:
                raise RankError(f"ranks call different collectives at the same time: {self._mixed}")
            other, why = next(iter(self._left.items()))
            raise RankError(f"rank {rank} calls {name}, and rank {other} {why}")

    def leave(self, rank: int, why: str) -> None:
        """Take part no more; ranks that wait for this one fail."""
        with self._changed:
            self._left[rank] = why
            self._changed.notify_all()

    def _complete(self) -> None:
        names = [self._given[rank][0] for rank in range(self.ranks)]
        if len(set(names)) > 1:
            self._mixed = ", ".join(f"rank {rank} {name}" for rank, name in enumerate(names))
        else:
            self._last = [self._given[rank][1] for rank in range(self.ranks)]
            self._given = {}
            self._count += 1
        self._changed.notify_all()


class _Present(threading.local):
    """The rank that the present thread runs."""

    rank: Optional[int] = None
    meeting: Optional[_Meeting] = None


_present = _Present()


def with_all_ranks(module: ModuleType, ranks: int) -> ModuleType:
    """Return a module whose model is called with the arguments of all ranks, and returns the outputs of all."""
    joint = ModuleType(module.__name__)
    joint.__dict__.update(vars(module))

    def get_inputs() -> List[Any]:
        drawn: List[List[Any]] = []
        with emulated_collectives():
            for rank in range(ranks):
                alone = _Meeting(ranks)
                alone.leave((rank + 1) % ranks, "draws its inputs at another time")
                with _running(rank, alone):
                    drawn.append(list(module.get_inputs()))
        if len({len(arguments) for arguments in drawn}) > 1:
            raise RankError("get_inputs() returns different numbers of arguments on different ranks")
        return [argument for arguments in drawn for argument in arguments]

    def forward(model: Any, *arguments: Any) -> Tuple[torch.Tensor, ...]:
        of_rank = parts_of_ranks(arguments, ranks)
        return _join(run_ranks(lambda rank: module.Model.forward(model, *of_rank[rank]), ranks, arguments))

    vars(joint)["get_inputs"] = get_inputs
    vars(joint)["Model"] = type("Model", (module.Model,), {"forward": forward})
    return joint


def run_ranks(call: Callable[[int], Any], ranks: int, arguments: Sequence[Any] = ()) -> List[Any]:
    """Run ``call(rank)`` in a thread per rank; return what all return.

    Threads compute without gradients, and make tensors on the device of those in ``arguments``.

    Raises:
        Exception: The first that a rank raised by itself.
    """
    meeting = _Meeting(ranks)
    device = next((tensor.device for tensor in tensors_in(arguments)), torch.device("cpu"))
    returned: List[Any] = [None] * ranks
    errors: Dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            with _running(rank, meeting), torch.no_grad(), torch.device(device):
                returned[rank] = call(rank)
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            errors[rank] = error
            meeting.leave(rank, f"raised {type(error).__name__}")
        else:
            meeting.leave(rank, "has returned")

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(ranks)]
    with emulated_collectives():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        own = [error for error in errors.values() if not isinstance(error, RankError)]
        raise (own or list(errors.values()))[0]
    return returned


def _join(returned: Sequence[Any]) -> Tuple[torch.Tensor, ...]:
    """Return the outputs of all ranks one after the other."""
    outputs = [tuple(one) if isinstance(one, (tuple, list)) else (one,) for one in returned]
    if len({len(one) for one in outputs}) > 1:
        raise RankError("the reference returns different numbers of outputs on different ranks")
    return tuple(output for one in outputs for output in one)


@contextmanager
def _running(rank: int, meeting: _Meeting) -> Iterator[None]:
    """Let ``torch.distributed`` in this thread be about ``rank``."""
    before = _present.rank, _present.meeting
    _present.rank, _present.meeting = rank, meeting
    try:
        yield
    finally:
        _present.rank, _present.meeting = before


@contextmanager
def emulated_collectives() -> Iterator[None]:
    """Replace functions of ``torch.distributed`` by those that work between threads, inside this context.

    A problem is imported, and runs, inside.
    """
    emulated = {**_EMULATED, **{name: _absent(name) for name in _ABSENT}}
    before, world = {name: getattr(dist, name) for name in emulated}, dist.GroupMember.WORLD
    vars(dist).update(emulated)
    dist.GroupMember.WORLD = _WORLD  # so that dist.group.WORLD is a group, as it is for real ranks
    try:
        yield
    finally:
        vars(dist).update(before)
        dist.GroupMember.WORLD = world


def _rank() -> int:
    if _present.rank is None:
        raise RankError("torch.distributed was called outside of the model and of get_inputs()")
    return _present.rank


def _meeting() -> _Meeting:
    _rank()
    assert _present.meeting is not None  # noqa: S101  # for the type checker: both are set together
    return _present.meeting


def _exchange(value: Any, name: str) -> List[Any]:
    return _meeting().exchange(_rank(), name, value)


def _reduced(parts: Sequence[torch.Tensor], op: Any) -> torch.Tensor:
    """Return the reduction of ``parts`` in their order."""
    reduce = _REDUCTIONS.get(op)
    if reduce is None:
        raise RankError(f"{op} is not there; there are sums, averages, products, maxima and minima")
    total = parts[0].clone()
    for part in parts[1:]:
        total = reduce(total, part)
    return total / len(parts) if op == dist.ReduceOp.AVG else total


class _Done:
    """Handle of a collective that has ended."""

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002  # as of torch.distributed.Work
        """Return True."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True


def _get_rank(group: Any = None) -> int:  # noqa: ARG001  # as of torch.distributed
    return _rank()


def _get_world_size(group: Any = None) -> int:  # noqa: ARG001  # as of torch.distributed
    return _meeting().ranks


def _is_initialized() -> bool:
    return _present.rank is not None


def _get_global_rank(group: Any, group_rank: int) -> int:  # noqa: ARG001  # as of torch.distributed
    return group_rank


def _get_process_group_ranks(group: Any = None) -> List[int]:  # noqa: ARG001  # as of torch.distributed
    return list(range(_get_world_size()))


class _World:
    """The default process group."""

    def size(self) -> int:
        """Return the number of ranks."""
        return _get_world_size()

    def rank(self) -> int:
        """Return the rank that the present thread runs."""
        return _get_rank()


_WORLD = _World()


# Collectives, with the names of torch's own arguments; all but group and handle, which :func:`_emulated` adds.


def _barrier() -> None:
    _exchange(None, "barrier")


def _all_reduce(tensor: torch.Tensor, op: Any) -> None:
    tensor.copy_(_reduced(_exchange(tensor.clone(), "all_reduce"), op))


def _reduce(tensor: torch.Tensor, dst: Optional[int], op: Any, group_dst: Optional[int]) -> None:
    parts = _exchange(tensor.clone(), "reduce")
    if _rank() == (dst or group_dst or 0):
        tensor.copy_(_reduced(parts, op))


def _broadcast(tensor: torch.Tensor, src: Optional[int], group_src: Optional[int]) -> None:
    tensor.copy_(_exchange(tensor.clone(), "broadcast")[src or group_src or 0])


def _all_gather(tensor_list: List[torch.Tensor], tensor: torch.Tensor) -> None:
    for place, part in zip(tensor_list, _exchange(tensor.clone(), "all_gather")):
        place.copy_(part)


def _all_gather_into_tensor(output_tensor: torch.Tensor, input_tensor: torch.Tensor) -> None:
    parts = _exchange(input_tensor.clone(), "all_gather_into_tensor")
    output_tensor.copy_(torch.cat([part.reshape(-1) for part in parts]).view_as(output_tensor))


def _reduce_scatter(output: torch.Tensor, input_list: List[torch.Tensor], op: Any) -> None:
    given = _exchange([one.clone() for one in input_list], "reduce_scatter")
    output.copy_(_reduced([parts[_rank()] for parts in given], op))


def _reduce_scatter_tensor(output: torch.Tensor, input: torch.Tensor, op: Any) -> None:  # noqa: A002  # see above
    total = _reduced(_exchange(input.clone(), "reduce_scatter_tensor"), op)
    output.copy_(total.reshape(-1).chunk(_meeting().ranks)[_rank()].view_as(output))


def _all_to_all(output_tensor_list: List[torch.Tensor], input_tensor_list: List[torch.Tensor]) -> None:
    given = _exchange([one.clone() for one in input_tensor_list], "all_to_all")
    for place, parts in zip(output_tensor_list, given):
        place.copy_(parts[_rank()])


def _all_to_all_single(output: torch.Tensor, input: torch.Tensor, input_split_sizes: Any) -> None:  # noqa: A002  # see above
    sizes = list(input_split_sizes or [len(input) // _meeting().ranks] * _meeting().ranks)
    given = _exchange(input.clone().split(sizes), "all_to_all_single")
    output.copy_(torch.cat([parts[_rank()] for parts in given]).view_as(output))


def _emulated(name: str, collective: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``collective`` with all arguments of torch's function ``name``, and its handle."""
    signature, wanted = inspect.signature(getattr(dist, name)), inspect.signature(collective).parameters

    def call(*arguments: Any, **options: Any) -> Optional[_Done]:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        if bound.arguments["group"] not in (None, _WORLD):
            raise RankError(f"{name} is called with a process group; only the default one is there")
        collective(**{one: bound.arguments.get(one) for one in wanted})  # older versions of torch lack a few
        return _Done() if bound.arguments["async_op"] else None

    return call


def _absent(name: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise RankError(f"torch.distributed.{name} cannot be used in a reference with several ranks")

    return refuse


_COLLECTIVES = (
    *(_barrier, _all_reduce, _reduce, _broadcast, _all_gather, _all_gather_into_tensor),
    *(_reduce_scatter, _reduce_scatter_tensor, _all_to_all, _all_to_all_single),
)
_RENAMED: Dict[str, Callable[..., Any]] = {
    "all_gather_single": _all_gather_into_tensor,
    "reduce_scatter_single": _reduce_scatter_tensor,
}
"""Names that torch has had since 2.13."""
_EMULATED: Dict[str, Callable[..., Any]] = {
    "get_rank": _get_rank,
    "get_world_size": _get_world_size,
    "is_initialized": _is_initialized,
    "get_global_rank": _get_global_rank,
    "get_process_group_ranks": _get_process_group_ranks,
    **{collective.__name__[1:]: _emulated(collective.__name__[1:], collective) for collective in _COLLECTIVES},
    **{name: _emulated(name, collective) for name, collective in _RENAMED.items() if hasattr(dist, name)},
}
_ABSENT = (
    *("new_group", "send", "recv", "isend", "irecv", "batch_isend_irecv", "P2POp", "gather", "scatter"),
    *("all_gather_object", "broadcast_object_list"),
)
