"""A function, and the calls of it in a test, as a module in KernelBench's form.

This file is a template. ``FILE`` beside it defines ``NAME``; the folder of a problem also has the test. ``get_inputs``
runs the test with a recorder in place of the function. Tensors of the recorded call become the arguments of
``forward``; all else in it (numbers, texts, dtypes, nesting of lists) becomes a recipe, the argument of the
constructor, so that a candidate needs no access to the test.
"""

# ruff: noqa: UP006, UP033, UP035  # must run on Python 3.9

import ast
import contextlib
import functools
import importlib.util
import io
import sys
import types
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch

Build = Callable[[Sequence[Any]], Any]
"""Function from the tensors of a call to one of its arguments."""

NAME = "@name@"
"""Name of the function."""
OTHER_NAME = "kernel_function"
"""Alternative name of the function."""
FILE = "@file@"
"""File that defines it."""
TEST = "test_segment.py"
"""Test that calls it, in the folder of a problem."""
HELPERS = "data_utils"
"""Module of the benchmark from which tests import random tensors."""

CASE = 0
"""Number of the call in the test, from 0."""

HERE = Path(__file__).parent


class Model(torch.nn.Module):  # type: ignore[misc]  # types are checked without torch
    """Calls the function with its input tensors and the constants of a recipe, see :func:`recipe_of`."""

    def __init__(self, recipe: Dict[str, Any]) -> None:
        super().__init__()
        self._function = load_function()
        self._device = recipe["device"]
        self._arguments = [builder(item, self._device) for item in recipe["arguments"]]
        self._keywords = {name: builder(item, self._device) for name, item in recipe["keywords"].items()}

    def forward(self, *tensors: Any) -> Any:
        """Return the result of the function: a tensor, or a tuple of all tensors and numbers in it."""
        arguments = [build(tensors) for build in self._arguments]
        keywords = {name: build(tensors) for name, build in self._keywords.items()}
        answer = self._function(*arguments, **keywords)
        return answer if isinstance(answer, torch.Tensor) else tuple(flattened(answer, self._device))


def load_function() -> Callable[..., Any]:
    """Load the function.

    Raises:
        AttributeError: its file does not define it.
    """
    module = load_module()
    for name in (NAME, OTHER_NAME):
        if callable(getattr(module, name, None)):
            function: Callable[..., Any] = getattr(module, name)
            return function
    raise AttributeError(f"{FILE} defines neither {NAME} nor {OTHER_NAME}")


@functools.lru_cache(maxsize=None)
def load_module() -> types.ModuleType:
    """Import ``FILE``, and keep it in ``sys.modules`` for Triton."""
    name = "kernel_matrix_" + Path(FILE).stem
    spec = importlib.util.spec_from_file_location(name, str(HERE / FILE))
    if spec is None or spec.loader is None:
        raise ImportError(f"{FILE} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def builder(item: Dict[str, Any], device: str) -> Build:
    """Return a function from the tensors of a call to the argument that ``item`` of a recipe describes."""
    ((kind, value),) = item.items()
    if kind == "tensor":
        return lambda tensors: tensors[value]
    if kind in ("list", "tuple"):
        parts = [builder(part, device) for part in value]
        make = list if kind == "list" else tuple
        return lambda tensors: make([build(tensors) for build in parts])
    if kind == "dict":
        named = {name: builder(part, device) for name, part in value.items()}
        return lambda tensors: {name: build(tensors) for name, build in named.items()}
    constant = _constant(kind, value, device)
    return lambda _tensors: constant


def _constant(kind: str, value: Any, device: str) -> Any:  # one line per kind of value
    if kind == "complex":
        return complex(*value)
    if kind == "torch":
        return getattr(torch, value)
    if kind == "size":
        return torch.Size(value)
    if kind == "device":
        return torch.device(device) if value == "object" else device
    if kind == "generator":
        return torch.Generator(device)
    return value


def flattened(answer: Any, device: str) -> Iterator[Any]:
    """Yield the tensors and numbers of a result as tensors in a fixed order; dictionaries are sorted by key."""
    if isinstance(answer, torch.Tensor):
        yield answer
    elif isinstance(answer, (bool, int, float, complex)):
        yield torch.tensor(answer, device=device)
    elif isinstance(answer, (list, tuple)):
        for part in answer:
            yield from flattened(part, device)
    elif isinstance(answer, dict):
        for key in sorted(answer, key=str):
            yield from flattened(answer[key], device)
    elif isinstance(answer, torch.optim.Optimizer):
        yield from flattened(answer.defaults, device)


# ---- the calls of a test, in the folder of a problem


_recipes: Dict[int, Dict[str, Any]] = {}
"""Case → recipe."""


def get_init_inputs() -> List[Any]:
    """Return the recipe of the call."""
    _recipes[CASE] = recipe_of(*record_call())[0]
    return [_recipes[CASE]]


def get_inputs() -> List[Any]:
    """Draw the tensors of the call.

    Raises:
        ValueError: the other arguments differ from the recipe.
    """
    recipe, tensors = recipe_of(*record_call())
    if _recipes.setdefault(CASE, recipe) != recipe:
        raise ValueError(f"{NAME}, case {CASE}: arguments other than tensors are random, which is unsupported")
    return tensors


def recipe_of(arguments: Sequence[Any], keywords: Dict[str, Any]) -> Tuple[Dict[str, Any], List[Any]]:
    """Return the recipe of a call, which is serialisable as JSON, and its tensors in the order of the recipe."""
    tensors: List[Any] = []
    recipe = {
        "arguments": [_item(value, tensors) for value in arguments],
        "keywords": {name: _item(value, tensors) for name, value in keywords.items()},
        "device": _device(),
    }
    return recipe, [tensor.detach() for tensor in tensors]


def _item(value: Any, tensors: List[Any]) -> Dict[str, Any]:  # noqa: C901, PLR0911  # one line per kind of value
    if isinstance(value, torch.Tensor):
        # A tensor that is passed twice becomes one argument.
        known = [place for place, tensor in enumerate(tensors) if tensor is value]
        if not known:
            tensors.append(value)
        return {"tensor": known[0] if known else len(tensors) - 1}
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_item(part, tensors) for part in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _item(part, tensors) for key, part in value.items()}}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).rsplit(".", maxsplit=1)[-1]}
    if isinstance(value, torch.device):
        return {"device": "object"}
    if isinstance(value, torch.Generator):
        return {"generator": None}
    if isinstance(value, str) and value == _device():
        return {"device": "name"}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise ValueError(f"{NAME}, case {CASE}: an argument of type {type(value).__name__} is unsupported")


def record_call() -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Run the test up to the call, and return its positional and keyword arguments.

    Raises:
        ValueError: the test makes fewer calls.
    """
    function = load_function()
    calls: List[Tuple[Tuple[Any, ...], Dict[str, Any]]] = []

    def recorder(*arguments: Any, **keywords: Any) -> Any:
        calls.append((arguments, keywords))
        if len(calls) > CASE:
            raise _RecordedError
        return function(*arguments, **keywords)

    names = {**vars(load_module()), "__name__": "kernel_matrix_test", "__file__": str(HERE / TEST), NAME: recorder}
    helpers = {"rand_tensor": rand_tensor, "rand_int": rand_int, "rand_bool": rand_bool}
    # Some tests import the function from a module named like it.
    with _surroundings({HELPERS: helpers, NAME: {NAME: recorder}}), contextlib.suppress(_RecordedError):
        exec(_test(_device()), names)  # noqa: S102  # the inputs come from the test
    if len(calls) <= CASE:
        raise ValueError(f"{NAME}: the test makes {len(calls)} calls, so there is no case {CASE} (from 0)")
    return calls[CASE]


class _RecordedError(BaseException):
    """Ends a test after the call; as a ``BaseException`` the test does not catch it."""


def _device() -> str:
    """Return torch's default device."""
    return str(torch.empty(0).device.type)


@functools.lru_cache(maxsize=None)
def _test(device: str) -> types.CodeType:
    """Compile the test for ``device``, without its own seeds."""
    tree = _Adapted(device).visit(ast.parse((HERE / TEST).read_bytes()))
    return compile(ast.fix_missing_locations(tree), TEST, "exec")


class _Adapted(ast.NodeTransformer):
    """Replaces the fixed devices and the fixed seeds of a test."""

    def __init__(self, device: str) -> None:
        self._device = device

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Replace ``"cuda"`` and ``"cuda:0"`` by the judge's device."""
        if isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:")):
            return ast.copy_location(ast.Constant(self._device), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace ``.cuda()`` likewise, and seeds by numbers drawn from the generator that the judge has seeded."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "cuda":
                node.func.attr, node.args, node.keywords = "to", [ast.Constant(self._device)], []
            elif node.func.attr in ("manual_seed", "manual_seed_all", "seed") and (node.args or node.keywords):
                drawn = ast.parse("__import__('torch').randint(1 << 31, (), device='cpu').item()", mode="eval").body
                node.args, node.keywords = [drawn], []
        return node


@contextlib.contextmanager
def _surroundings(modules: Dict[str, Dict[str, Any]]) -> Iterator[None]:
    """Suppress what a test prints, provide the modules that it imports (name → content), and undo its changes."""
    path, known = list(sys.path), {name: sys.modules.get(name) for name in modules}
    for name, content in modules.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(content)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        sys.path[:] = path
        for name, module in known.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module


def rand_tensor(
    shape: Sequence[int],
    *,
    dtype: Any = torch.float32,
    device: Any = None,
    mode: str = "standard",
    outlier_prob: float = 0.001,
    outlier_scale: float = 50.0,
    low: float = -1.0,
    high: float = 1.0,
) -> Any:
    """Draw normal numbers (``standard``), normal numbers with outliers (``outlier``), or ``uniform`` numbers."""
    if mode == "uniform":
        return torch.rand(tuple(shape), dtype=dtype, device=device) * (high - low) + low
    if mode not in ("standard", "outlier"):
        raise ValueError(f"mode must be standard, outlier or uniform; got {mode!r}")
    numbers = torch.randn(tuple(shape), dtype=dtype, device=device)
    if mode == "standard":
        return numbers
    chosen = torch.rand(numbers.shape, device=device) < outlier_prob
    return torch.where(chosen, torch.randn_like(numbers) * outlier_scale, numbers)


def rand_int(shape: Sequence[int], *, low: int, high: int, device: Any = None, dtype: Any = torch.int64) -> Any:
    """Draw integers from ``low`` to just below ``high``."""
    return torch.randint(low, high, tuple(shape), dtype=dtype, device=device)


def rand_bool(shape: Sequence[int], *, device: Any = None) -> Any:
    """Draw booleans with equal probability."""
    return torch.randint(2, tuple(shape), dtype=torch.bool, device=device)
