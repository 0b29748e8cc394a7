"""``kernel-matrix generate``."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import JsonAfterProgress, Lock, MatrixFile, Sandbox, command_line
from kernel_matrix.cli.output import print_json, write_line
from kernel_matrix.errors import InfrastructureError, UsageError

if TYPE_CHECKING:
    from kernel_matrix.api.generate import AnswerReceived, GenerationOptions, GenerationProgress, GenerationResult

_Model = Annotated[str, typer.Option("--model", metavar="NAME", help="Name of the model at the endpoint.")]
_BaseUrl = Annotated[str, typer.Option("--base-url", metavar="URL", help="Endpoint, such as https://HOST/v1.")]
_Recorded = Annotated[
    Path | None, typer.Option("--recorded", metavar="DIR", help="Take recorded answers in place of an endpoint.")
]
_KeyEnv = Annotated[str, typer.Option("--api-key-env", metavar="NAME", help="Environment variable of the key.")]
_Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything is kept, and continued.")]
_Problem = Annotated[
    list[str] | None,
    typer.Option("--problem", metavar="GLOB", help="Only these problems of the matrix. Repeat for more."),
]
_Gpu = Annotated[str, typer.Option("--gpu", metavar="NAME", help="GPU of the matrix; its first.")]
_Dtype = Annotated[str, typer.Option("--dtype", metavar="NAME", help="Dtype of the matrix; each problem's first.")]
_Toolchain = Annotated[str, typer.Option("--toolchain", metavar="NAME", help="Toolchain of the matrix; its first.")]
_Prompt = Annotated[
    str, typer.Option("--prompt", metavar="NAME", help="zero-shot, one-shot, few-shot, or the file of a template.")
]
_Language = Annotated[
    str, typer.Option("--language", metavar="NAME", help="Language of the kernels, as in candidates' metadata.")
]
_Hardware = Annotated[bool, typer.Option("--hardware", help="Tell the GPU's data sheet and the least possible time.")]
_Precision = Annotated[bool, typer.Option("--precision", help="Tell the dtype and how to accumulate.")]
_PrintPrompt = Annotated[bool, typer.Option("--print-prompt", help="Print the first prompts, and send nothing.")]
_Samples = Annotated[int, typer.Option("--samples", metavar="N", min=1, help="Samples of each problem and round.")]
_Rounds = Annotated[int, typer.Option("--rounds", metavar="N", min=1, help="Rounds; later ones get the evidence.")]
_Strategy = Annotated[
    str, typer.Option("--strategy", metavar="NAME", help="repeated, refine, best-first, or what a package adds.")
]
_Temperature = Annotated[float | None, typer.Option("--temperature", metavar="X", help="Left out: the endpoint's.")]
_Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the first sample; the next have the next.")]
_Field = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="KEY=JSON", help="Set a field of requests; null removes it. Repeat for more."),
]
_Concurrency = Annotated[int, typer.Option("--concurrency", metavar="N", min=1, help="Requests at the same time.")]
_Timeout = Annotated[float, typer.Option("--timeout-s", metavar="S", min=0.001, help="Longest wait for an answer.")]
_BudgetUsd = Annotated[float | None, typer.Option("--budget-usd", metavar="USD", min=0, help="Send nothing beyond it.")]
_BudgetTokens = Annotated[
    int | None, typer.Option("--budget-tokens", metavar="N", min=0, help="Send nothing beyond so many tokens.")
]
_BudgetS = Annotated[float | None, typer.Option("--budget-s", metavar="S", min=0, help="Send nothing after that time.")]
_Prices = Annotated[Path | None, typer.Option("--prices", metavar="FILE", help="Prices of models, TOML.")]
_Runs = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="Write KernelBench's candidates as its runs/<run> too.")
]
_Judge = Annotated[str, typer.Option("--judge", metavar="URL", help="Have a service judge; see KERNEL_MATRIX_TOKEN.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(generate)


def generate(
    matrix: MatrixFile = Path("matrix.toml"),
    *,
    model: _Model = "",
    base_url: _BaseUrl = "",
    recorded: _Recorded = None,
    api_key_env: _KeyEnv = "OPENAI_API_KEY",
    out: _Out = Path("generated"),
    problem: _Problem = None,
    gpu: _Gpu = "",
    dtype: _Dtype = "",
    toolchain: _Toolchain = "",
    prompt: _Prompt = "zero-shot",
    language: _Language = "triton",
    hardware: _Hardware = False,
    precision: _Precision = False,
    print_prompt: _PrintPrompt = False,
    samples: _Samples = 4,
    rounds: _Rounds = 1,
    strategy: _Strategy = "refine",
    temperature: _Temperature = None,
    seed: _Seed = 0,
    field: _Field = None,
    concurrency: _Concurrency = 4,
    timeout_s: _Timeout = 600.0,
    budget_usd: _BudgetUsd = None,
    budget_tokens: _BudgetTokens = None,
    budget_s: _BudgetS = None,
    prices: _Prices = None,
    runs: _Runs = None,
    judge: _Judge = "",
    sandbox: Sandbox = "auto",
    lock: Lock = None,
    json: JsonAfterProgress = False,
) -> None:
    """Have a language model write candidates for the problems of a matrix, judge them, and feed back the evidence."""
    try:
        from kernel_matrix.api import generate as api
    except ModuleNotFoundError as error:
        what = f"{error.name} is not installed"
        raise InfrastructureError(what, next_step="pip install 'kernel-matrix[client]'") from None

    prompt_options = api.PromptOptions(
        template=prompt, language=api.parse_language(language), hardware=hardware, precision=precision
    )
    settings = api.GenerationSettings(
        model=model,
        prompt=prompt_options,
        samples=samples,
        rounds=rounds,
        strategy=strategy,
        temperature=temperature,
        seed=seed,
        fields=dict(map(_parse_field, field or ())),
        concurrency=concurrency,
        budget=api.GenerationBudget(usd=budget_usd, tokens=budget_tokens, seconds=budget_s),
    )
    options = api.GenerationOptions(
        matrix=matrix,
        settings=settings,
        folder=out,
        base_url=base_url,
        recorded=recorded,
        api_key_env=api_key_env,
        timeout_s=timeout_s,
        problems=tuple(problem or ()),
        gpu=gpu,
        dtype=dtype,
        toolchain=toolchain,
        prices=prices,
        runs=runs,
        judge=judge,
        sandbox=sandbox,
        lock=lock,
    )
    if print_prompt:
        _print_prompts(options)
    else:
        _generate(options, as_json=json)


def _print_prompts(options: GenerationOptions) -> None:
    from kernel_matrix.api.generate import first_prompts

    for problem, text in first_prompts(options):
        write_line(f"# ---- {problem}\n\n{text}")


def _generate(options: GenerationOptions, *, as_json: bool) -> None:
    from kernel_matrix.api.generate import generate as generate_candidates

    def tell(progress: GenerationProgress) -> None:
        line = _line(progress)
        if line:
            write_line(line, stderr=as_json)

    result = generate_candidates(options, listener=tell, command=command_line())
    if as_json:
        print_json(asdict(result))
    else:
        for line in _summary(result):
            write_line(line)
    if result.candidates and result.machine_failed == result.candidates:
        raise typer.Exit(InfrastructureError.exit_code)


def _parse_field(text: str) -> tuple[str, Any]:
    """Return key and value of ``--field``.

    Raises:
        UsageError: It has another form.
    """
    name, separator, value = text.partition("=")
    try:
        return name if separator else "", json_format.loads(value)
    except ValueError:
        what = f"--field {text} is not KEY=JSON"
        raise UsageError(
            what, next_step="write for example --field max_tokens=8192 or --field 'stop=[\"END\"]'"
        ) from None


def _line(progress: GenerationProgress) -> str:
    """Return a line about what happened; empty for the end."""
    from kernel_matrix.api.generate import AnswerReceived, CandidateJudged, GenerationNote, GenerationStarted

    if isinstance(progress, GenerationStarted):
        stored = f"; {progress.stored} answers are stored" if progress.stored else ""
        return f"{progress.problems} problems × {progress.samples} samples × {progress.rounds} rounds{stored}"
    if isinstance(progress, AnswerReceived):
        return _answer_line(progress)
    if isinstance(progress, CandidateJudged):
        attempt = progress.attempt
        speedup = f", {attempt.speedup:.2f}×" if attempt.is_right and attempt.speedup else ""
        status = attempt.result.status if attempt.result else ""
        machine = "" if attempt.is_usable else " (not the candidate's fault, no score)"
        return f"{attempt.problem}/{attempt.name}: {status}{speedup}{machine}"
    return f"note: {progress.text}" if isinstance(progress, GenerationNote) else ""


def _answer_line(progress: AnswerReceived) -> str:
    attempt, line = progress.attempt, progress.line
    words = [f"{line.tokens} tokens" if line.tokens_prompt is not None else "tokens unknown"]
    words += [f"{line.usd:.4f} USD"] if line.usd is not None else []
    words += ["stored before"] if progress.was_stored else [f"{line.latency_s:.1f} s"]
    words += [f"no candidate: {attempt.no_code}"] if attempt.no_code else []
    return f"{attempt.problem}/{attempt.name}: answered, {', '.join(words)}"


def _summary(result: GenerationResult) -> list[str]:
    usd = "of unknown price" if result.usd is None else f"{result.usd:.4f} USD"
    asked = f"{result.answers} answers ({result.sent} new), {result.tokens} tokens in all, {usd}"
    lines = [f"{asked}; {result.candidates} candidates, {result.right} right"]
    for count, what in (
        (result.without_code, "answers without code"),
        (result.without_answer, "requests without an answer; the same command sends them again"),
        (result.machine_failed, "candidates without a score, since something else failed"),
    ):
        lines += [f"{count} {what}"] if count else []
    for problem, best in result.best.items():
        speedup = f", {best.speedup:.2f}×" if best.speedup else ""
        lines.append(f"best of {problem}: {best.name}{speedup}")
    return [*lines, f"candidates: {result.folder / 'candidates'}"]
