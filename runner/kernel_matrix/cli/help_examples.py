"""Examples at the end of each verb's help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "analyze": (
        "analyze scores --by gpu,dtype            how many are right, and how fast",
        "analyze portability --platforms h100,h200",
        "analyze scores --explain                 what each column means",
        "analyze ranks tables --filter dtype=fp16 --csv",
    ),
    "audit": (
        "audit                                    the first findings of each check",
        "audit tables --only impossible_time --all",
        "audit --csv                              every finding, as a table",
    ),
    "baseline accept": ("baseline accept 'softmax/*' --reason 'new accumulator' --until 2027-01-31",),
    "baseline list": ("baseline list",),
    "baseline set": ("baseline set release tables",),
    "baseline show": ("baseline show release --json",),
    "candidates check": ("candidates check --path problems",),
    "candidates list": (
        "candidates list 'softmax/*'",
        "candidates list --group-by language --columns id,description",
    ),
    "candidates show": ("candidates show softmax/triton_row",),
    "fleet cancel": ("fleet cancel",),
    "fleet check": ("fleet check", "fleet check fleet.toml --matrix matrix.toml --json"),
    "fleet collect": ("fleet collect",),
    "fleet logs": ("fleet logs km-4631c196-6c916e8d-1",),
    "fleet status": ("fleet status", "fleet status --columns name,node,records --csv"),
    "cell run": ("cell run cell.json --out results/one",),
    "compare": (
        "compare old new                          what broke, what is slower",
        "compare results --between gpu=h100,h200",
        "compare old new --confirm --matrix matrix.toml",
        "compare old new --filter 'problem=soft*' --all --csv",
    ),
    "docs": (
        "docs                                     every page",
        "docs matrix",
    ),
    "doctor": (
        "doctor                                   for ./matrix.toml",
        "doctor --matrix other.toml --json",
    ),
    "generate": (
        "generate --model NAME --base-url https://HOST/v1 --out mine --problem softmax",
        "generate --print-prompt --prompt few-shot --hardware --problem softmax",
        "generate --model NAME --base-url URL --rounds 3 --strategy best-first --prices prices.toml --budget-usd 5",
    ),
    "gpus calibrate": ("gpus calibrate --gpu 0",),
    "gpus list": ("gpus list --columns index,name,power,temperature",),
    "gpus show": (
        "gpus show                                a table of all that are known",
        "gpus show h200",
        "gpus show 'rtx 4090' --prompt            for a language model",
    ),
    "gpus watch": ("gpus watch --gpu 0 --every 1 --count 60 --json",),
    "images build": ("images build cpu",),
    "images list": ("images list --lock images/images.lock",),
    "images lock": ("images lock cu130",),
    "images pull": ("images pull cu128 cu130", "images pull cu130 --archive cu130.tar"),
    "images verify": ("images verify cu130",),
    "import": ("import logs/ --out tables/others", "import results.jsonl --out tables/others --gpu h100 --dtype fp32"),
    "init": (
        "init mine                                a problem of your own, and a kernel for it",
        "init lab --example gpu                   kernels on this machine's GPU, with pinned images",
    ),
    "merge": ("merge                                    results/ into tables/", "merge results/nightly --out night"),
    "nightly": ("nightly matrix.toml --until 06:00",),
    "pack": (
        "pack results/nightly                     writes nightly.kmz",
        "pack results/nightly -o night.kmz --traces --matrix matrix.toml",
    ),
    "pairs": (
        "pairs results/nightly kernel-pairs",
        "pairs tables kernel-pairs --matrix matrix.toml --nearest 3",
    ),
    "plan": (
        "plan                                     what of ./matrix.toml runs here",
        "plan --filter gpu=h100 --all             every cell of a GPU, with its reason",
        "plan --sort -expected_s --limit 10       the longest cells",
        "plan - --columns gpu,dtype,candidate,reason --csv < matrix.toml",
    ),
    "platform prove": (
        "platform prove cpu --quick",
        "platform prove NAME -o report.json       writes report.json and report.md",
    ),
    "problems check": ("problems check --path problems",),
    "problems list": (
        "problems list 'soft*'",
        "problems list --sort -candidates --limit 10",
        "problems list --source kernelbench --path KernelBench --csv",
    ),
    "problems show": ("problems show softmax",),
    "problems try": ("problems try 'soft*' --dtype fp32",),
    "report": (
        "report results/nightly                   writes report.html",
        "report tables --filter gpu=h200 --format md",
        "report new --against old --out night.html",
    ),
    "reproduce": ("reproduce results/nightly/records/RECORD.json",),
    "results": (
        "results                                  the run just made",
        "results results/nightly --filter status!=passed",
        "results --filter 'problem=soft*' --sort -speedup --limit 10",
        "results --columns problem,candidate,gb_per_s,percent_of_peak",
        "results --group-by gpu --format latex    for a paper",
        "results --csv --columns all              for a spreadsheet",
    ),
    "run": (
        "run                                      everything that can run here",
        "run --filter candidate=softmax/mine -v",
        "run --rerun failed --deadline 06:00",
        "run - --sandbox process < matrix.toml",
    ),
    "sweep": ("sweep",),
    "unpack": ("unpack nightly.kmz results/theirs",),
    "try": (
        "try my_softmax.py --problem softmax",
        "try my_kernel.py --reference mine.py --dtype bf16 --watch",
    ),
}
"""Verb → command lines without the program's name, with what they do."""


def examples_of(verb: str) -> str | None:
    """Return the end of a verb's help; ``None`` where there are no examples."""
    lines = EXAMPLES.get(verb)
    if lines is None:
        return None
    return "\b\nExamples:\n" + "\n".join(f"  kernel-matrix {line}" for line in lines)  # \b: lines stay as they are
