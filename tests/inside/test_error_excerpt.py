"""Of a compiler's output, the first error and the line it points at are kept, for every compiler."""

from __future__ import annotations

import pytest

from kernel_matrix.inside.error_excerpt import MAX_MESSAGE, first_error, useful_part

NINJA = """\
Traceback (most recent call last):
  File "/opt/torch/utils/cpp_extension.py", line 2506, in _run_ninja_build
    subprocess.run(
subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/candidate/candidate.py", line 31, in <module>
    extension = load_inline(name="add", cpp_sources=DECLARATION, cuda_sources=SOURCE)
  File "/opt/torch/utils/cpp_extension.py", line 1700, in load_inline
    return _jit_compile(
RuntimeError: Error building extension 'add': [1/3] c++ -MMD -MF main.o.d -c main.cpp -o main.o
[2/3] /usr/local/cuda/bin/nvcc -MD -c cuda.cu -o cuda.o -DERROR=1
FAILED: cuda.cuda.o
/usr/local/cuda/bin/nvcc -MD -c cuda.cu -o cuda.o -DERROR=1
cuda.cu(12): warning #177-D: variable "y" was declared but never referenced
cuda.cu(17): error: expected a ";"
    x[1] = y;
    ^

1 error detected in the compilation of "cuda.cu".
ninja: build stopped: subcommand failed.
"""

FORMS = {
    "nvcc": (NINJA, 'cuda.cu(17): error: expected a ";"'),
    "g++": (
        "w.cpp: In function 'int main()':\nw.cpp:2:35: error: no member named 'foo'\n    2 | a.foo();\n",
        "w.cpp:2:35: error: no member named 'foo'",
    ),
    "a missing header": (
        "w.cu:1:10: fatal error: no_such.h: No such file or directory\ncompilation terminated.\n",
        "w.cu:1:10: fatal error: no_such.h: No such file or directory",
    ),
    "ptxas": (
        "ptxas error   : Entry function 'g' uses too much shared data (0x40000 bytes, 0x38c00 max)\n",
        "ptxas error   : Entry function 'g' uses too much shared data (0x40000 bytes, 0x38c00 max)",
    ),
    "ptxas, with a line": (
        "ptxas t.ptx, line 41; error   : Unknown modifier '.bar'\nptxas fatal   : Ptx assembly aborted due to errors\n",
        "ptxas t.ptx, line 41; error   : Unknown modifier '.bar'",
    ),
    "ptxas, at its end": (
        "ptxas fatal   : Unresolved extern function '_Z5otherf'\n",
        "ptxas fatal   : Unresolved extern function '_Z5otherf'",
    ),
    "a linker": (
        """/usr/bin/ld: main.o: in function `f':
main.cpp:(.text+0x9): undefined reference to `g()'
collect2: error: ld returned 1 exit status
""",
        "main.cpp:(.text+0x9): undefined reference to `g()'",
    ),
    "Triton": (
        """Traceback (most recent call last):
  File "candidate.py", line 9, in forward
triton.compiler.errors.CompilationError: at 8:11:
    y = x + z
        ^
NameError('z is not defined')
""",
        "NameError('z is not defined')",
    ),
    "Python": (
        '  File "/candidate/candidate.py", line 3\n    def broken(:\n               ^\nSyntaxError: invalid syntax\n',
        "SyntaxError: invalid syntax",
    ),
    "nothing": (" \n", "failed without a message"),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_first_error_is_the_one_that_counts(name):
    log, message = FORMS[name]
    assert first_error(log) == message


def test_a_message_has_an_end():
    assert len(first_error("k.cu(1): error: " + "x" * 9999)) == MAX_MESSAGE


def test_useful_part_keeps_error_line_and_origin():
    assert useful_part(NINJA, 4096).splitlines() == [
        '  File "/candidate/candidate.py", line 31, in <module>',
        '    extension = load_inline(name="add", cpp_sources=DECLARATION, cuda_sources=SOURCE)',
        'cuda.cu(17): error: expected a ";"',
        "    x[1] = y;",
        "    ^",
    ]


def test_a_g_plus_plus_error_keeps_the_function_it_is_in():
    assert useful_part(FORMS["g++"][0], 4096).splitlines()[0] == "w.cpp: In function 'int main()':"


def test_where_nothing_says_error_the_end_is_kept():
    assert useful_part("a" * 100 + "the end", 7) == "the end"


def test_however_long_it_is_the_first_error_stays():
    log = "k.cu(3): error: the first\n" + "k.cu(4): error: another\n" * 100_000
    assert useful_part(log, 4096).startswith("k.cu(3): error: the first")
    assert len(useful_part(log, 4096)) <= 4096
