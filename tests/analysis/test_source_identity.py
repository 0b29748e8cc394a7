"""What makes two sources the same, and the licence that they name."""

import pytest

from kernel_matrix.analysis.source_identity import SourceText

PYTHON = "class ModelNew:\n    word = 1\n"
BROKEN = "class ModelNew:\n    word =\n"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (PYTHON, f'# a note\n"""A docstring."""\n{PYTHON.replace(" = ", "=")}', True),
        (PYTHON, PYTHON.replace("1", "2"), False),
        (BROKEN, BROKEN.replace("\n", "  \n\n"), True),
        (BROKEN, BROKEN.replace("    ", "  "), False),
        ("__global__ void f() {}", "__global__ void g() {}", False),
        ("nul \0", "nul \0\n", True),
    ],
)
def test_identity_ignores_comments_and_formatting_only(one, other, same):
    assert (SourceText(one).identity == SourceText(other).identity) is same


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        ("", None),
        ("# SPDX-License-Identifier: MIT\n", "MIT"),
        ("/* SPDX-License-Identifier: GPL-2.0+ WITH GCC-exception-2.0 */", "GPL-2.0+ WITH GCC-exception-2.0"),
        ("# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: Apache-2.0\n", "Apache-2.0 AND MIT"),
    ],
)
def test_licence_is_what_the_source_names(text, licence):
    assert SourceText(text).licence == licence


def test_several_files_are_one_text():
    assert SourceText.of_files({"one.cu": "a"}).text == "a"
    assert SourceText.of_files({"one.cu": "a\n", "two.h": "b"}).text == "==> one.cu <==\na\n\n==> two.h <==\nb"
