"""Prompts: the first one for a problem, and those that answer an attempt with the evidence about it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Final

from kernel_matrix.bundled import bundled_path
from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.generation import GenerationAttempt
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.measure.roofline import Work, roofline
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms.data_sheet_text import describe_sheet
from kernel_matrix.platforms.data_sheets import DataSheet, sheets_of
from kernel_matrix.sources import Problem, Workload
from kernel_matrix.toml_text import parse_toml

Message = Mapping[str, str]
"""Message of a chat: ``role`` and ``content``."""

TEMPLATES: Final = ("zero-shot", "one-shot", "few-shot")
PLACEHOLDERS: Final = (
    *("language", "reference", "workloads", "rules", "precision", "hardware", "example", "examples"),
)
"""Names that a template may use, each as ``${name}``."""

_FOLDER: Final = Path(__file__).with_name("prompts")
_MOST_EVIDENCE_CHARACTERS: Final = 4000

_LANGUAGES: Final = parse_toml(Path(__file__).with_name("languages.toml").read_text(encoding="utf-8"))
LANGUAGES: Final = tuple(_LANGUAGES)
"""Names of the languages that candidates can be asked for in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOptions:
    """Contents of a prompt."""

    template: str = TEMPLATES[0]
    """One of :data:`TEMPLATES`, or the path of a file."""
    language: Language = Language.TRITON
    hardware: bool = False
    """Tell what the data sheet says of the GPU, and the least time that its peaks allow."""
    precision: bool = False
    """Tell the dtype, and what it means for accumulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTarget:
    """Target of a candidate: problem, shapes, GPU, toolchain and dtype."""

    problem: Problem
    workloads: Sequence[Workload]
    gpu: GpuAxis
    dtype: Dtype
    toolchain: str = ""

    @property
    def place(self) -> str:
        """Name of where candidates are judged, for a folder."""
        return "_".join(filter(None, (self.gpu.name, self.toolchain, self.dtype.value)))


class PromptWriter:
    """Writer of prompts from one template.

    Args:
        options: What a prompt has in it.

    Raises:
        UsageError: The template cannot be read or used.
    """

    def __init__(self, options: PromptOptions) -> None:
        self._options = options
        if options.language.value not in LANGUAGES:
            what = f"--language {options.language.value} cannot be asked for"
            raise UsageError(what, next_step=f"choose one of {', '.join(LANGUAGES)}")
        self._language = _LANGUAGES[options.language.value]
        self._template = _read_template(options.template)
        wants_examples = {"example", "examples"} & set(_names_in(self._template))
        if wants_examples and not self._language["examples"]:
            what = f"there are no examples in {self._language['title']}"
            raise UsageError(what, next_step="use --prompt zero-shot, or a file without ${example} and ${examples}")

    @property
    def name(self) -> str:
        """Name of the template, of a file with a digest of its text, and of the optional parts that it is given."""
        name = self._options.template
        if name not in TEMPLATES:
            name = f"{Path(name).stem}-{hashlib.sha256(self._template.template.encode()).hexdigest()[:8]}"
        parts = [part for part in ("hardware", "precision") if getattr(self._options, part)]
        return "+".join((name, *parts))

    def first(self, target: PromptTarget) -> str:
        """Return the prompt for a new attempt."""
        shown = (name for name in self._language["examples"] if name.split("/")[0] != target.problem.id)
        examples = list(map(_example, shown))
        values = {
            "language": self._language["title"],
            "reference": _source(target.problem),
            "workloads": _describe_workloads(target),
            "rules": self._language["rules"],
            "precision": _describe_precision(target.dtype) if self._options.precision else "",
            "hardware": _describe_hardware(target) if self._options.hardware else "",
            "example": examples[0] if examples else "",
            "examples": "\n\n".join(examples),
        }
        text = self._template.template
        for name in (name for name, value in values.items() if not value):  # an empty part leaves no empty lines
            text = re.sub(rf"^\$\{{{name}\}}\n+", "", text, flags=re.MULTILINE)
        return Template(text).substitute(values).strip() + "\n"

    def messages(self, target: PromptTarget, parent: GenerationAttempt | None) -> list[Message]:
        """Return the messages of a request: for a new attempt, or to improve the code of ``parent``."""
        asked: list[Message] = [{"role": "user", "content": self.first(target)}]
        if parent is None:
            return asked
        code = parent.candidate.source if parent.candidate else ""
        said = f"```{'cpp' if parent.candidate and parent.candidate.suffix != '.py' else 'python'}\n{code}```"
        return [
            *asked,
            {"role": "assistant", "content": said if code else "(no code)"},
            {"role": "user", "content": follow_up(parent)},
        ]


def follow_up(parent: GenerationAttempt) -> str:
    """Return the answer to an attempt: why it has no code, what was wrong with it, or how fast it is."""
    result = parent.result
    if result is None:
        return _fill("no-code", reason=parent.no_code)
    if not result.is_right:
        return _fill("repair", status=result.status, stage=result.stage or "unknown", evidence=_list(result.evidence))
    rows = (_measured(name, row) for name, row in result.workloads.items())
    return _fill("optimise", measurements="\n".join(rows) or "(no times)")


def _read_template(name: str) -> Template:
    path = _FOLDER / f"{name}.md" if name in TEMPLATES else Path(name)
    try:
        template = Template(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        what = f"the prompt {name} is not there, or cannot be read: {getattr(error, 'strerror', error)}"
        raise UsageError(what, next_step=f"name a file, or one of {', '.join(TEMPLATES)}") from None
    for found in _names_in(template):
        if found not in PLACEHOLDERS:
            hint = suggestion(found, PLACEHOLDERS) if found else "; write $$ for a dollar sign"
            what = f"{name}: ${{{found}}} is no placeholder{hint}"
            raise UsageError(what, next_step=f"placeholders are {', '.join(PLACEHOLDERS)}")
    return template


def _names_in(template: Template) -> list[str]:
    """Return the names that a template uses; a ``$`` that begins none is an empty one."""
    matches = [match for match in Template.pattern.finditer(template.template) if not match["escaped"]]
    return [match["named"] or match["braced"] or "" for match in matches]


def _fill(name: str, **values: str) -> str:
    return Template((_FOLDER / f"{name}.md").read_text(encoding="utf-8")).substitute(values)


def _source(problem: Problem) -> str:
    return problem.code.module().decode(errors="replace").strip()


def _example(name: str) -> str:
    problem, candidate = name.split("/")
    folder = bundled_path("problems", problem)
    reference = (folder / "reference.py").read_text(encoding="utf-8").strip()
    code = (folder / "candidates" / f"{candidate}.py").read_text(encoding="utf-8").strip()
    return f"The module:\n\n```python\n{reference}\n```\n\nThe implementation:\n\n```python\n{code}\n```"


def _describe_workloads(target: PromptTarget) -> str:
    shapes = [", ".join(f"{key} = {value}" for key, value in it.values.items()) for it in target.workloads]
    lines = [f"- {it.name}: {shape or 'as in the file'}" for it, shape in zip(target.workloads, shapes, strict=True)]
    return "\n".join([f"Tensors are {target.dtype.value}. It is judged with these values of the constants:", *lines])


def _describe_precision(dtype: Dtype) -> str:
    text = f"Inputs, parameters and outputs of floating types are {dtype.value}."
    if dtype in (Dtype.FP16, Dtype.BF16, Dtype.FP8_E4M3, Dtype.FP8_E5M2):
        return f"{text} Accumulate sums and products in fp32, and convert once, when a result is stored."
    return f"{text} Do not compute in a type with fewer bits than that."


def _describe_hardware(target: PromptTarget) -> str:
    """Return what is known about the GPU; empty for a CPU, and for a GPU without a data sheet."""
    if not target.gpu.model:
        return ""
    try:
        sheet = sheets_of(target.gpu.model)[0]
    except UsageError:
        return ""
    lines = [line for workload in target.workloads if (line := _least_time(workload, sheet, target.dtype))]
    return "\n".join(["It runs on this GPU:", "", describe_sheet(sheet), *lines])


def _least_time(workload: Workload, sheet: DataSheet, dtype: Dtype) -> str:
    """Return a line with the least time that the roofline allows; empty if it is unknown."""
    work = Work(flops=workload.flops, bytes=workload.bytes.get(dtype))
    peak = Work(flops=sheet.ops_per_s.get(dtype.value), bytes=sheet.bytes_per_s)
    line = roofline(1.0, work, peak)  # the share of the peak at 1 ns is the least time in ns
    if line.utilisation is None:
        return ""
    limit = f", by {line.bound}" if line.bound else ""
    return f"- least time of workload {workload.name} by these peaks: {line.utilisation / 1e3:.3g} µs{limit}"


def _list(evidence: Mapping[str, Any]) -> str:
    return "\n".join(f"{name}: {_cut(str(value))}" for name, value in evidence.items()) or "(no evidence)"


def _cut(text: str) -> str:
    """Keep the end, where compilers and tracebacks say what is wrong."""
    return text if len(text) <= _MOST_EVIDENCE_CHARACTERS else f"…{text[-_MOST_EVIDENCE_CHARACTERS:]}"


def _measured(name: str, row: Mapping[str, Any]) -> str:
    def time(column: str) -> str:
        return f"{row[column] / 1e3:.4g} µs" if column in row else "unknown"

    parts = [f"{time('candidate_median_ns')}, and `Model` {time('baseline_median_ns')}"]
    parts += [f"speed-up {row['speedup']:.3g}"] if "speedup" in row else []
    parts += [f"verdict {row['verdict']}"] if "verdict" in row else []
    parts += [f"{row['share_of_peak']:.0%} of the peak"] if "share_of_peak" in row else []
    parts += [f"limited by {row['bound']}"] if "bound" in row else []
    return f"- {name}: {'; '.join(parts)}"
