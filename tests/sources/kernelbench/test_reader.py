import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import load_source
from tests.sources.examples import REFERENCE, write


@pytest.fixture
def checkout(tmp_path):
    """Write a checkout with a problem of each kind."""
    for name in (
        "level1/10_3D_tensor_matrix_multiplication",
        "level1/1_Square_matrix_multiplication_",
        "level1/19_ReLU",
        "level1/23_Softmax",
        "level1/40_LayerNorm",
        "level1/42_Max_Pooling_2D",
        "level1/51_Argmax_over_a_dimension",
        "level1/5_Matrix_scalar_multiplication",
        "level1/64_conv_transposed_1D",
        "level1/89_cumsum",
        "level1/95_CrossEntropyLoss",
        "level2/1_Conv2D_ReLU_BiasAdd",
        "level3/9_ResNet18",
        "level4/16_gpt2_bs1_seq1023",
    ):
        write(tmp_path / f"KernelBench/{name}.py", REFERENCE)
    return tmp_path


def test_reads_every_level_in_the_order_of_the_numbers(checkout):
    loaded = load_source("kernelbench", checkout)
    assert not loaded.unreadable
    assert not loaded.candidates
    assert [(p.id, p.category, p.level) for p in loaded.problems] == [
        ("level1/1_Square_matrix_multiplication_", "MatrixMultiply", 1),
        ("level1/5_Matrix_scalar_multiplication", "Math", 1),
        ("level1/10_3D_tensor_matrix_multiplication", "MatrixMultiply", 1),
        ("level1/19_ReLU", "Activation", 1),
        ("level1/23_Softmax", "Activation", 1),
        ("level1/40_LayerNorm", "Normalization", 1),
        ("level1/42_Max_Pooling_2D", "Pooling", 1),
        ("level1/51_Argmax_over_a_dimension", "Reduce", 1),
        ("level1/64_conv_transposed_1D", "Convolution", 1),
        ("level1/89_cumsum", "Math", 1),
        ("level1/95_CrossEntropyLoss", "Loss", 1),
        ("level2/1_Conv2D_ReLU_BiasAdd", "Fusion", 2),
        ("level3/9_ResNet18", "Other", 3),
        ("level4/16_gpt2_bs1_seq1023", "Other", 4),
    ]


def test_a_problem_runs_unchanged_in_three_dtypes(checkout):
    problem = load_source("kernelbench", checkout).problems[0]
    assert problem.path.read_text() == REFERENCE.lstrip("\n")
    assert problem.dtypes == (Dtype.FP32, Dtype.FP16, Dtype.BF16)
    assert [(w.name, w.values) for w in problem.workloads] == [("default", {})]
    assert problem.description == "Square matrix multiplication"


def test_the_inner_folder_is_as_good(checkout):
    inner = load_source("kernelbench", checkout / "KernelBench")
    assert [p.digest for p in inner.problems] == [p.digest for p in load_source("kernelbench", checkout).problems]


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(checkout):
    folder = checkout / "KernelBench/level1"
    write(folder / "20_LeakyReLU.py", "import torch\n\nclass Net:\n    pass\n")
    write(folder / "notes.py", REFERENCE)
    loaded = load_source("kernelbench", checkout)
    assert len(loaded.problems) == 14
    notes, leaky = map(str, loaded.unreadable)
    assert notes == f"{folder / 'notes.py'}: is not named <number>_<name>.py"
    assert leaky.startswith(f"{folder / '20_LeakyReLU.py'}:4: defines no Model; ")


def test_any_other_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a KernelBench checkout"):
        load_source("kernelbench", tmp_path)
    with pytest.raises(UsageError, match="is not a KernelBench checkout"):
        load_source("kernelbench", tmp_path / "absent")
