import pytest

from kernel_matrix.model.enums import Language
from kernel_matrix.sources.document import UnreadableFileError
from kernel_matrix.sources.reference_module import detect_language, digest_of, packages_needed, read_reference
from tests.sources.examples import REFERENCE, write


def test_reads_constants_without_running_the_module(tmp_path):
    path = write(tmp_path / "reference.py", REFERENCE + "\nraise SystemExit(7)\n")
    reference = read_reference(path)
    values = {name: constant.value for name, constant in reference.constants.items()}
    assert values == {"M": 4, "N": 8, "SCALE": 0.5, "KIND": "sum"}
    assert reference.constants["N"].line == 5
    assert reference.dependents("M") == ("N",)


def test_a_workload_replaces_numbers(tmp_path):
    reference = read_reference(write(tmp_path / "reference.py", REFERENCE))
    assert reference.numbers({"M": 10}) == {"M": 10, "N": 8, "SCALE": 0.5}


def test_constants_may_be_unpacked_annotated_or_unknown(tmp_path):
    text = "A, B = 1, 'two'\nC: int = A + 2\nD = open('x')\n(E, F) = D\n" + REFERENCE
    reference = read_reference(write(tmp_path / "reference.py", text))
    found = {name: reference.constants[name].value for name in "ABCD"}
    assert found == {"A": 1, "B": "two", "C": 3, "D": None}
    assert "E" not in reference.constants


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("import torch\n\n\nclass Modl:\n    pass\n", 5, "defines no Model"),
        ("class Model:\n    pass\n", 2, "defines no get_inputs"),
        ("class Model:\n    def forward(self\n", 2, "not valid Python"),
        ("", 1, "defines no Model"),
        ("x = '\0'", None, "not valid Python"),
    ],
)
def test_a_reference_that_is_none_is_refused_with_its_line(tmp_path, text, line, words):
    with pytest.raises(UnreadableFileError, match=words) as refused:
        read_reference(write(tmp_path / "reference.py", text))
    assert refused.value.unreadable.line in {line, 1 if line is None else line}


@pytest.mark.parametrize(
    ("source", "language"),
    [
        (b"import triton\n@triton.jit\ndef k(): pass\n", Language.TRITON),
        (b"import triton as t\n@t.autotune(configs=[])\n@t.jit\ndef k(): pass\n", Language.TRITON),
        (b"from triton import jit\n@jit\ndef k(): pass\n", Language.TRITON),
        (b"from numba import jit\n@jit\ndef k(): pass\n", Language.TORCH),
        (b"# @triton.jit\nimport triton\ns = '@triton.jit'\n", Language.TORCH),
        (b"from torch.utils.cpp_extension import load_inline\n", Language.CUDA),
        (b"import torch.utils.cpp_extension\n", Language.CUDA),
        (b"import torch\n", Language.TORCH),
        (b"import triton\n@triton.jit\ndef k(:\n", Language.TRITON),
        (b"x = load_inline(\n", Language.CUDA),
        (b"def f(:\n", Language.TORCH),
        (b"\xff\xfe\0", Language.TORCH),
        (b"(" * 100_000, Language.TORCH),
        (b"x = '\\d'\n", Language.TORCH),
        (b"import tilelang\nimport tilelang.language as T\n", Language.TILELANG),
        (b"from tilelang import language as T\nimport triton\n@triton.jit\ndef k(): pass\n", Language.TILELANG),
        (b"import tilelang\ndef f(:\n", Language.TILELANG),
        (b"import cutlass\nimport cutlass.cute as cute\n", Language.CUTE_DSL),
        (b"from cutlass.cute.runtime import from_dlpack\n", Language.CUTE_DSL),
        (b"import torch\nimport tilelang_extras\nx = 'import cutlass'\n", Language.TORCH),
        (b"import os\nos.environ['CXX'] = 'hipcc'\nload_inline()\n", Language.HIP),
        (b"SOURCE = '#include <hip/hip_runtime.h>'\nload_inline(SOURCE)\n", Language.HIP),
        (b"SOURCE = f'#ifdef __HIP_PLATFORM_AMD__ {1}'\n", Language.HIP),
        (b"'''For hipcc, and for nvcc.'''\nload_inline()  # hipcc\n", Language.CUDA),
        (b"S = '#include <hip/hip_runtime.h>\\n#include <cuda_runtime.h>'\nload_inline(S)\n", Language.CUDA),
        (b"x = load_inline('#include <hip/hip_runtime.h>'\n", Language.HIP),
    ],
)
def test_detects_the_language(source, language):
    assert detect_language(source) is language


def test_the_digest_covers_source_and_facts():
    digests = {digest_of(b"a", {}), digest_of(b"b", {}), digest_of(b"a", {"x": 1}), digest_of(b"a", {"x": 2})}
    assert len(digests) == 4
    assert digest_of(b"a", {"x": 1, "y": 2}) == digest_of(b"a", {"y": 2, "x": 1})


NEEDED = {
    "import tilelang": {"tilelang"},
    "import torch, cuda.bindings as c": {"torch", "cuda"},
    "from cutlass.cute import jit": {"cutlass"},
    "class ModelNew:\n def forward(self, x):\n  import flash_attn\n  return x": {"flash_attn"},
    "async def f():\n import apex": {"apex"},
    "try:\n import flash_attn\nexcept ImportError:\n flash_attn = None": set(),
    "try:\n x = 1\nexcept Exception:\n import tilelang": set(),
    "if True:\n import tilelang": set(),
    "from . import tilelang\nfrom .tilelang import language": set(),
    "raise ModuleNotFoundError(\"No module named 'tilelang'\", name='tilelang')": set(),
    "import tilelang\ndef broken(:": set(),
    'extern "C" __global__ void k() {}': set(),
}


@pytest.mark.parametrize("source", NEEDED)
def test_a_package_is_needed_where_a_source_has_no_way_around_it(source):
    assert packages_needed(source.encode()) == NEEDED[source]
