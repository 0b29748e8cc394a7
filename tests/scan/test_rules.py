"""Each rule with code that it must find and similar honest code that it must not."""
# ruff: noqa: E501  # sources on one line each are a table

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.scan import MOST_FINDINGS, RULES, SourceScan, scan_files, scan_text

Scanner = Callable[..., SourceScan]

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.utils.cpp_extension import load_inline

@triton.jit
def own_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)

def launch(x):
    out = torch.empty_like(x)
    own_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""

MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        return launch(x)
"""


@pytest.fixture
def scan(tmp_path: Path) -> Scanner:
    """Return a function that scans a source."""

    def scanned(*parts: str, language: Language = Language.TRITON, dtype: Dtype = Dtype.FP32) -> SourceScan:
        return scan_text("\n".join(dedent(part) for part in parts), language, dtype)

    return scanned


def rules(scan: SourceScan) -> list[str]:
    return [finding.rule for finding in scan.findings]


def test_an_honest_kernel_has_no_findings(scan: Scanner) -> None:
    found = scan(HEAD, MODEL)
    assert found.findings == ()
    assert found.own_kernels == ("own_kernel",)


def test_a_source_that_does_not_parse_is_left_to_the_compiler(scan: Scanner) -> None:
    assert scan("class ModelNew(:") == SourceScan(own_kernels=(), findings=())


def test_a_finding_shows_its_line(scan: Scanner) -> None:
    (finding,) = scan(HEAD, MODEL, "torch.cuda.synchronize = lambda: None").findings
    assert finding.rule == "timing"
    assert finding.message == "torch.cuda.synchronize is replaced"
    assert finding.evidence == "torch.cuda.synchronize = lambda: None"
    assert finding.line is not None


def test_a_source_that_repeats_itself_is_told_so_often(scan: Scanner) -> None:
    assert len(scan(HEAD, MODEL, *["import gc; gc.get_objects()"] * 99).findings) == MOST_FINDINGS


FORWARD = """
class ModelNew(nn.Module):
    def forward(self, x):
        y = launch(x)
        {}
"""

FOUND = {
    "entry": [
        "class Other(nn.Module):\n    def forward(self, x):\n        return launch(x)",
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n        launch",
    ],
    "library_calls": [
        FORWARD.format("return torch.matmul(y, y)"),
        FORWARD.format("return y @ y"),
        FORWARD.format("return F.softmax(y, dim=-1)"),
        FORWARD.format("return (y + 1).softmax(-1)"),
        FORWARD.format("return y.sum()"),
        FORWARD.format("return torch.ops.aten.mm(y, y)"),
        """
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)
            def forward(self, x):
                return self.layer(launch(x))
        """,
    ],
    "fallback": [
        FORWARD.format(
            "try:\n            y = launch(x)\n        except Exception:\n            y = x + 1\n        return y"
        ),
        "from reference import Model\nclass ModelNew(Model):\n    def forward(self, x):\n        return launch(x)",
        MODEL
        + "\ntry:\n    extension = load_inline(name='x', cpp_sources='', functions=[])\nexcept Exception:\n    extension = None",
    ],
    "decoy": [
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x + 1",
        MODEL + "\n@triton.jit\ndef unused_kernel(x):\n    pass",
    ],
    "precision": [
        FORWARD.format("return y.half().float()"),
        FORWARD.format("return y.to(torch.bfloat16)"),
        FORWARD.format("return torch.empty(4, dtype=torch.float16)"),
        MODEL
        + "\n@triton.jit\ndef helper(x):\n    return tl.dot(x, x)\nlaunch.helper = helper\nModelNew.helper = helper",
        MODEL + "\ntorch.backends.cuda.matmul.allow_tf32 = True",
        MODEL + "\ntorch.set_float32_matmul_precision('high')",
    ],
    "timing": [
        MODEL + "\ntorch.cuda.Event.elapsed_time = lambda *a: 0.001",
        MODEL + "\nimport time\nsetattr(time, 'perf_counter', lambda: 0)",
        MODEL + "\nfrom time import perf_counter\nlaunch.__code__ = perf_counter",
        MODEL + "\ntorch.allclose = print",
    ],
    "streams": [
        FORWARD.format("with torch.cuda.stream(torch.cuda.Stream()):\n            return launch(x)"),
    ],
    "threads": [
        FORWARD.format(
            "import threading\n        threading.Thread(target=launch, args=(x,)).start()\n        return y"
        ),
        MODEL + "\nimport subprocess\nsubprocess.Popen(['true'])",
        MODEL + "\nfrom os import fork\nfork()",
        MODEL + "\nimport concurrent.futures.thread\nconcurrent.futures.thread.threading.Thread(target=launch).start()",
        MODEL + "\nimport concurrent.futures.thread as pool\npool.threading.Timer(1, launch).start()",
        MODEL + "\nfrom queue import threading as t\nt.Thread(target=launch).start()",
        MODEL + "\nimport queue\nT = queue.threading\nT.Thread(target=launch).start()",
        MODEL + "\nimport threading\nclass Worker(threading.Thread):\n    pass\nWorker().start()",
        MODEL + "\nimport threading\nlist(map(threading.Thread, [launch]))",
        MODEL + "\nimport threading\nthreading._start_new_thread(launch, ())",
        MODEL + "\nimport threading\ngetattr(threading, 'Thread')(target=launch).start()",
        MODEL + "\nimport threading\nvars(threading)['Thread'](target=launch).start()",
        MODEL + "\nimport threading\nthreading.__dict__['Thread'](target=launch).start()",
        MODEL + "\nimport sys\nsys.modules['threading'].Thread(target=launch).start()",
        MODEL + "\nimport sys\nsys.modules.get('threading').Thread(target=launch).start()",
        MODEL + "\n__import__('threading').Thread(target=launch).start()",
        MODEL + "\nimport importlib\nimportlib.import_module('_thread').start_new_thread(launch, ())",
        MODEL + "\nfrom concurrent.futures.thread import ThreadPoolExecutor\nThreadPoolExecutor(1).submit(launch)",
        MODEL + "\nfrom multiprocessing.pool import ThreadPool\nThreadPool(1).map(launch, [])",
        MODEL + "\nimport multiprocessing.dummy\nmultiprocessing.dummy.Process(target=launch).start()",
        MODEL + "\ntorch.os.fork()",
        MODEL + "\nimport weakref\nweakref.finalize(launch, print)",
    ],
    "lazy": [
        MODEL + "\nclass Later(torch.Tensor):\n    pass",
        MODEL + "\nclass Later:\n    def __torch_function__(self, *a):\n        pass",
    ],
    "memo": [
        MODEL
        + "\ncache = {}\ndef remember(x):\n    key = x.data_ptr()\n    if key not in cache:\n        cache[key] = launch(x)\n    return cache[key]",
        MODEL + "\ncache = dict()\ndef remember(x):\n    return cache.get((x.shape, x.dtype))",
        MODEL + "\nlast = 0\ndef remember(x):\n    return x.data_ptr() == last",
        MODEL + "\nimport functools\n@functools.lru_cache\ndef remember(x):\n    return launch(x.contiguous())",
    ],
    "frames": [
        MODEL + "\nimport sys\nsys._getframe(1)",
        MODEL + "\nimport ctypes\nctypes.CDLL('libcuda.so.1')",
        MODEL + "\nopen('/proc/self/maps')",
        MODEL + "\nimport sys\nfor module in sys.modules.values():\n    print(module)",
        MODEL + "\nimport sys as s\nnames = [name for name, module in s.modules.items()]",
        MODEL + "\nfrom sys import modules\nfound = [*modules]",
        MODEL + "\nimport sys\nloaded = sys.modules\nprint(loaded.copy())",
        MODEL + "\nimport importlib\nlist(importlib.sys.modules.values())",
        MODEL + "\nlist(map(print, torch.sys.modules.values()))",
        MODEL + "\nimport sys\nlist(getattr(sys, 'modules').values())",
        MODEL + "\nimport sys\nlist(sys.__dict__['modules'].values())",
        MODEL + "\nimport sys\nprint(sys.modules['time'])",
        MODEL + "\nfor kind in object.__subclasses__():\n    print(kind)",
        MODEL + "\nnn.Module.forward.__globals__['os']",
        MODEL + "\ntry:\n    launch(1)\nexcept Exception as error:\n    error.__traceback__.tb_frame.f_back",
    ],
    "capture": [
        MODEL + "\ngraph = torch.cuda.CUDAGraph()",
        MODEL + "\nfast = torch.compile(launch, mode='reduce-overhead')",
    ],
    "hidden": [
        MODEL + "\ngetattr(torch.cuda, 'synch' + 'ronize')()",
        MODEL + "\nexec('x = 1')",
        MODEL + "\nimport base64\nbase64.b64decode('aGk=')",
        MODEL + "\nimport importlib\nimportlib.import_module(MODEL_NAME)",
    ],
}


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in FOUND.items() for code in codes])
def test_a_rule_finds_what_it_is_there_for(scan: Scanner, rule: str, code: str) -> None:
    assert rule in rules(scan(HEAD, code))


def test_scan_of_very_long_chains_ends() -> None:
    chains = ("torch" + "().__dict__['a']" * 2000, "torch" + ".a" * 2000, "torch" + "()" * 2000)
    for chain in chains:
        scan_text(f"import torch\nclass ModelNew:\n    x = {chain}", Language.TRITON, Dtype.FP32)


def test_every_rule_is_tested() -> None:
    assert set(FOUND) == set(RULES)


HONEST = {
    "weights that are held but not called": """
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)
            def forward(self, x):
                return launch(x, self.layer.weight)
    """,
    "an alignment that is looked at": FORWARD.format("assert x.data_ptr() % 16 == 0\n        return y"),
    "a docstring that speaks of a forward pass": '''
        class ModelNew(nn.Module):
            """exec, eval, torch.matmul and a Stream: words are no calls."""
            def forward(self, x):
                """The forward pass. # torch.cuda.synchronize = None"""
                return launch(x)
    ''',
    "evaluation mode": MODEL + "\nmodel = ModelNew()\nmodel.eval()",
    "an import that may be missing": MODEL + "\ntry:\n    import numpy\nexcept ImportError:\n    numpy = None",
    "a failure that is told": FORWARD.format(
        "try:\n            return launch(x)\n        except ValueError as error:\n            raise RuntimeError('no') from error"
    ),
    "another type where the input has it": FORWARD.format("assert x.dtype in (torch.float16, torch.bfloat16)\n        return y"),
    "a table of types": MODEL + "\nTYPES = {torch.float16: tl.float16, torch.float32: tl.float32}",
    "wider arithmetic": FORWARD.format("return y.double().to(x.dtype)"),
    "settings": MODEL + "\nimport os\nos.environ['A'] = 'b'\ntorch.backends.cudnn.benchmark = True",
    "an attribute by its name": FORWARD.format("return getattr(self, 'launch', launch)(x)"),
    "a module of one's own class": """
        class Inner(nn.Module):
            def forward(self, x):
                return launch(x)
        class ModelNew(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = Inner()
            def forward(self, x):
                return self.inner(x)
    """,
    "precision that is asked for": MODEL + "\n@triton.jit\ndef dot(x):\n    return tl.dot(x, x, input_precision='ieee')\nModelNew.dot = dot\nlaunch.dot = dot",
    "a module that it adds": MODEL
    + "\nimport importlib.util, sys\nspec = importlib.util.spec_from_file_location('own', 'own.py')\nown = importlib.util.module_from_spec(spec)\nsys.modules[spec.name] = own\nspec.loader.exec_module(own)",
    "its own module": MODEL + "\nimport sys\nsys.modules[__name__].__doc__\nknown = 'numpy' in sys.modules",
    "modules of a model": FORWARD.format("for module in self.modules():\n            assert module is self\n        return y"),
    "a window": FORWARD.format("assert torch.signal.windows.hann(4).numel()\n        return y"),
    "a cache by size": MODEL + "\nconfigs = {}\ndef config(n):\n    return configs.get(n)",
    "a helper of a kernel": """
        @triton.jit
        def helper(x):
            return x * 2
        @triton.jit
        def outer_kernel(x):
            tl.store(x, helper(tl.load(x)))
        class ModelNew(nn.Module):
            def forward(self, x):
                outer_kernel[(1,)](x)
                return launch(x)
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in HONEST if name != "precision that is asked for"])
def test_honest_code_is_left_alone(scan: Scanner, name: str) -> None:
    assert scan(HEAD, HONEST[name]).findings == ()


def test_a_full_product_is_left_alone(scan: Scanner) -> None:
    assert "precision" not in rules(scan(HEAD, HONEST["precision that is asked for"]))


@pytest.mark.parametrize(
    ("dtype", "found"),
    [(Dtype.FP64, True), (Dtype.FP32, False), (Dtype.FP16, False), (Dtype.INT8, False), (Dtype.FP8_E4M3, False)],
)
def test_what_is_narrow_depends_on_the_cell(scan: Scanner, dtype: Dtype, *, found: bool) -> None:
    assert ("precision" in rules(scan(HEAD, FORWARD.format("return y.float()"), dtype=dtype))) is found


def test_tf32_is_no_loss_where_the_cell_is_tf32(scan: Scanner) -> None:
    code = MODEL + "\ntorch.backends.cuda.matmul.allow_tf32 = True"
    assert scan(HEAD, code, dtype=Dtype.TF32).findings == ()


def test_a_candidate_in_pytorch_is_made_of_library_calls(scan: Scanner) -> None:
    code = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return torch.relu(x @ x)"
    head = "import torch\nimport torch.nn as nn"
    assert scan(head, code, language=Language.TORCH).findings == ()


# ---- a function as the entry

FUNCTION = """
def relu(x, inplace=False):
    return launch(x)
"""


def scan_function(*parts: str) -> SourceScan:
    return scan_text("\n".join(dedent(part) for part in parts), Language.TRITON, Dtype.FP32, entry="relu")


@pytest.mark.parametrize(
    "code",
    [
        FUNCTION,
        "relu = launch",
        "from elsewhere import relu",
        "async def relu(x):\n    return launch(x)",
        "if torch.cuda.is_available():\n    def relu(x):\n        return launch(x)\nelse:\n    relu = launch",
    ],
)
def test_a_function_may_be_what_is_called(code: str) -> None:
    assert "entry" not in rules(scan_function(HEAD, code))


def test_an_honest_function_has_no_findings() -> None:
    found = scan_function(HEAD, FUNCTION)
    assert found.findings == ()
    assert found.own_kernels == ("own_kernel",)


@pytest.mark.parametrize(
    "code",
    [
        "def other(x):\n    return launch(x)",
        "class Layer(nn.Module):\n    def relu(self, x):\n        return launch(x)",
        "class Layer(nn.Module):\n    def forward(self, x):\n        return launch(x).relu()",
    ],
)
def test_a_function_that_is_not_there(code: str) -> None:
    (finding,) = [finding for finding in scan_function(HEAD, code).findings if finding.rule == "entry"]
    assert finding.message == "no class or function relu is defined"
    assert finding.line is None


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("library_calls", "def relu(x):\n    return F.relu(launch(x))"),
        ("library_calls", "def helper(x):\n    return torch.relu(x)\ndef relu(x):\n    return helper(launch(x))"),
        ("decoy", "def relu(x):\n    return x + 1"),
        ("fallback", "def relu(x):\n    try:\n        return launch(x)\n    except Exception:\n        return x + 1"),
    ],
)
def test_what_a_function_reaches_is_looked_at(rule: str, code: str) -> None:
    assert rules(scan_function(HEAD, code)) == [rule]


def test_what_a_function_does_not_reach_is_left_alone() -> None:
    assert (
        scan_function(HEAD, FUNCTION, "def test(x):\n    return torch.allclose(relu(x), torch.relu(x))").findings == ()
    )


# ---- C++ in strings

CUDA = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
#include <torch/extension.h>
// cublasSgemm( and cudaStreamCreate( in a comment
template <typename T>
__global__ void __launch_bounds__(256, 2) own_kernel(const T* x, T* out) { out[threadIdx.x] = x[threadIdx.x]; }
%s
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  own_kernel<float><<<1, 256>>>(x.data_ptr<float>(), out.data_ptr<float>());
  TORCH_CHECK(true, "at::matmul( in a text");
  %s
  return out;
}
"""
extension = load_inline(name="own", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=SOURCE)
class ModelNew(nn.Module):
    def forward(self, x):
        return extension.%s(x)
'''


def test_honest_cuda_with_odd_comments_has_no_findings(scan: Scanner) -> None:
    found = scan(CUDA % ("", "", "run"), language=Language.CUDA)
    assert found.findings == ()
    assert found.own_kernels == ("own_kernel",)


@pytest.mark.parametrize(
    ("rule", "top", "inside"),
    [
        ("library_calls", "", "out = at::matmul(x, x);"),
        ("library_calls", "", "cublasSgemm(handle);"),
        ("streams", "", "cudaStream_t s; cudaStreamCreate(&s);"),
        ("threads", "", "std::thread([] {}).detach();"),
        ("precision", "", "auto h = __float2half(1.0f);"),
        ("precision", "", "auto h = static_cast<__nv_bfloat16>(x);"),
        ("timing", "", "cudaEventElapsedTime(&t, a, b);"),
        ("capture", "", "cudaGraphLaunch(graph, stream);"),
        ("frames", "", "cudaIpcOpenMemHandle(&p, handle, 0);"),
        ("hidden", "#define JOIN(a, b) a##b", ""),
        ("decoy", "__global__ void never_kernel(float* x) {}", ""),
    ],
)
def test_what_is_found_in_cuda(scan: Scanner, rule: str, top: str, inside: str) -> None:
    found = scan(CUDA % (top, inside, "run"), language=Language.CUDA)
    assert rules(found) == [rule]
    assert (top or inside).split(";")[0] in found.findings[0].evidence + ";"


@pytest.mark.parametrize(
    ("rule", "inside"),
    [
        ("library_calls", "hipblasSgemm(handle);"),
        ("library_calls", "rocblas_sgemm(handle);"),
        ("library_calls", "miopenSoftmaxForward(handle);"),
        ("library_calls", "hipcub::DeviceReduce::Sum(x);"),
        ("streams", "hipStream_t s; hipStreamCreate(&s);"),
        ("streams", "hipExtStreamCreateWithCUMask(&s, 1, mask);"),
        ("threads", "hipLaunchHostFunc(stream, f, x);"),
        ("precision", "auto h = static_cast<__hip_bfloat16>(x);"),
        ("precision", "auto h = __hip_cvt_float_to_fp8(x, a, b);"),
        ("timing", "hipEventElapsedTime(&t, a, b);"),
        ("capture", "hipGraphLaunch(graph, stream);"),
        ("frames", "hipIpcOpenMemHandle(&p, handle, 0);"),
        ("frames", "hipMemExportToShareableHandle(&p, handle, kind, 0);"),
    ],
)
def test_what_is_found_in_hip(scan: Scanner, rule: str, inside: str) -> None:
    found = scan(CUDA % ("", inside, "run"), language=Language.HIP)
    assert rules(found) == [rule]


def test_an_extension_that_is_never_called_is_a_decoy(scan: Scanner) -> None:
    source = (CUDA % ("", "", "run")).replace("return extension.run(x)", "return x + 1")
    assert rules(scan(source, language=Language.CUDA)) == ["decoy"]


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("__global__ void k1(float* x)", "k1"),
        ("__global__ static void k2(int n)", "k2"),
        ("static __global__ void k3()", "k3"),
        ("__global__ void __launch_bounds__(BLOCK * (2)) k4(int n)", "k4"),
        ("__global__ __attribute__((amdgpu_flat_work_group_size(1, 256))) void k6(int n)", "k6"),
        ("template <int N> __global__ __launch_bounds__(128) void k5(float* x)", "k5"),
        ("__global__ void __cluster_dims__(2, 1, 1) k6(float* x)", "k6"),
        ("__global__ void\n  k7\n  (float* x)", "k7"),
        ('extern "C" __global__ void k8(float* x)', "k8"),
    ],
)
def test_names_of_kernels(scan: Scanner, declaration: str, name: str) -> None:
    assert scan(f"SOURCE = '''\n{declaration} {{}}\n'''").own_kernels == (name,)


def test_kernels_made_in_other_ways_are_found(scan: Scanner) -> None:
    code = """
    import triton, cupy
    def body(x): pass
    kernel = triton.jit(body)
    raw = cupy.RawKernel(open("k.cu").read(), "raw_kernel")
    """
    assert scan(code).own_kernels == ("body", "raw_kernel")


def test_gluon_kernels_are_kernels(scan: Scanner) -> None:
    code = "from triton.experimental import gluon\n@gluon.jit\ndef g_kernel(x): pass"
    assert scan(code).own_kernels == ("g_kernel",)


def test_a_mangled_line_number_is_the_files(scan: Scanner) -> None:
    found = scan(CUDA % ("", "out = at::matmul(x, x);", "run"), language=Language.CUDA)
    assert found.findings[0].evidence == "out = at::matmul(x, x);"


def test_reject_findings_allows_exactly_the_scan_rules():
    policy = load_schema("matrix")["$defs"]["policy"]["properties"]
    assert policy["reject_findings"]["items"]["examples"] == list(RULES.built_in)


@pytest.mark.timeout(20)  # a pattern that tries every way to split these would take years
@pytest.mark.parametrize(
    "text",
    ["*" * 60 + "a(", "a *" * 60 + " f(x)", "a " * 20_000, "/*" * 50_000, 'R"(' * 30_000, "#define a \\\n" * 5_000],
    ids=["stars", "pointers", "words", "comments", "raw texts", "macros"],
)
def test_a_source_that_no_pattern_likes_is_read_in_no_time(scan: Scanner, text: str) -> None:
    source = "__global__ void late_kernel(float* x) {}\nvoid run(float* x) { late_kernel<<<1, 1>>>(x); }\n" + text
    found = scan(MODEL, f"SOURCE = {source!r}", language=Language.CUDA)
    assert found.own_kernels == ("late_kernel",)


def test_scan_files_reads_file_that_defines_entry() -> None:
    files = {
        "helper.py": b"import torch\n",
        "kernel.py": b"import triton\n\n@triton.jit\ndef inner(x):\n    pass\n\ndef run(x):\n    inner[(1,)](x)\n",
        "kernel.cu": b"// __global__ void gone(\n__global__ void scale(float* x) {}\n",
    }
    scan = scan_files(files, Language.TRITON, Dtype.FP32, entry="run")
    assert scan == SourceScan(own_kernels=("inner", "scale"), findings=())
    assert {found.rule for found in scan_files(files, Language.TRITON, Dtype.FP32, entry="go").findings} == {"entry"}


def test_without_python_there_are_kernels_and_no_findings() -> None:
    files = {"kernel.cu": b'extern "C" __global__ void scale(float* x) {}\n'}
    assert scan_files(files, Language.CUDA, Dtype.FP32, entry="run") == SourceScan(own_kernels=("scale",), findings=())
