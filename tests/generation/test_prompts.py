"""Prompts, and what is fed back."""

from __future__ import annotations

import hashlib

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.generation import GeneratedCandidate, GenerationAttempt
from kernel_matrix.generation.prompts import LANGUAGES, TEMPLATES, PromptOptions, PromptWriter
from kernel_matrix.model.enums import Language
from kernel_matrix.model.evaluation import EvaluationResult
from tests.generation.recording import REFERENCE, WRONG, right, target


def first(tmp_path, problem="tiny", **options):
    return PromptWriter(PromptOptions(**options)).first(target(tmp_path, problem))


def attempt(result, **more):
    candidate = GeneratedCandidate(problem="tiny", name="r0-s0", source="class ModelNew: pass\n")
    values = {"problem": "tiny", "name": "r0-s0", "sample": 0, "round": 0, "candidate": candidate, "result": result}
    return GenerationAttempt(**{**values, **more})


@pytest.mark.parametrize("language", LANGUAGES)
def test_zero_shot_has_reference_shapes_and_language(tmp_path, language):
    text = first(tmp_path, language=Language(language))
    assert REFERENCE.strip() in text
    assert "- smoke: N = 24" in text
    assert language.upper() in text.upper()
    assert "GPU" not in text
    assert "\n\n\n" not in text.replace(REFERENCE.strip(), "")


def test_examples_are_those_of_other_problems(tmp_path):
    assert first(tmp_path, template="one-shot").count("The implementation:") == 1
    assert first(tmp_path, template="few-shot").count("The implementation:") == 3
    assert first(tmp_path, "softmax", template="few-shot").count("The implementation:") == 2
    assert "relu_kernel" not in first(tmp_path, "relu", template="one-shot")


def test_hardware_and_precision_are_parts_on_request(tmp_path):
    text = first(tmp_path, hardware=True, precision=True)
    assert "NVIDIA H200" in text
    assert "least time of workload smoke by these peaks: 4e-05 µs, by memory" in text
    assert "are fp32" in text


def test_own_template_is_filled(tmp_path):
    (tmp_path / "mine.md").write_text("In ${language}, for $$1: ${reference}")
    assert first(tmp_path, template=str(tmp_path / "mine.md")) == f"In Triton, for $1: {REFERENCE.strip()}\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("${refrence}", "did you mean 'reference'"),
        ("It costs $5", r"write \$\$ for a dollar sign"),
        (b"\xff", "cannot be read"),
        (None, "mine.md is not there"),
    ],
)
def test_bad_template_is_told(tmp_path, text, what):
    path = tmp_path / "mine.md"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=what):
        PromptWriter(PromptOptions(template=str(path)))


def test_language_without_examples_is_told():
    with pytest.raises(UsageError, match="no examples in HIP"):
        PromptWriter(PromptOptions(template="few-shot", language=Language.HIP))
    with pytest.raises(UsageError, match="--language torch"):
        PromptWriter(PromptOptions(language=Language.TORCH))


def last(tmp_path, parent):
    messages = PromptWriter(PromptOptions()).messages(target(tmp_path), parent)
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    return messages[1]["content"], messages[2]["content"]


def test_wrong_candidate_gets_the_evidence(tmp_path):
    said, asked = last(tmp_path, attempt(WRONG))
    assert said == "```python\nclass ModelNew: pass\n```"
    assert "`incorrect_values` in the step `verify`" in asked
    assert "message: 3 elements differ" in asked


def test_long_log_keeps_its_end(tmp_path):
    failed = EvaluationResult("compile_error", "candidate", stage="build", evidence={"log": "x" * 9000 + "the end"})
    asked = last(tmp_path, attempt(failed))[1]
    assert "the end" in asked
    assert len(asked) < 5000


def test_right_candidate_gets_its_times(tmp_path):
    asked = last(tmp_path, attempt(right(1.5)))[1]
    assert "- smoke: 2 µs, and `Model` 3 µs; speed-up 1.5" in asked
    assert "faster" in asked


def test_answer_without_code_gets_the_reason(tmp_path):
    said, asked = last(tmp_path, attempt(None, candidate=None, no_code="the model refused"))
    assert said == "(no code)"
    assert "cannot be judged: the model refused" in asked


def test_templates_are_in_the_package():
    assert [PromptWriter(PromptOptions(template=name)) for name in TEMPLATES]


def test_prompt_name_tells_templates_and_parts_apart(tmp_path):
    mine = tmp_path / "mine.md"
    names = []
    for text in ("${reference}", "Please. ${reference}"):
        mine.write_text(text)
        names.append(PromptWriter(PromptOptions(template=str(mine))).name)
    assert names[0] == f"mine-{hashlib.sha256(b'${reference}').hexdigest()[:8]}"
    assert names[1] != names[0]
    assert PromptWriter(PromptOptions(hardware=True, precision=True)).name == "zero-shot+hardware+precision"
