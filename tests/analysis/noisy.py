"""Sessions with simulated noise, and the answers of ``variance`` about them."""

from dataclasses import replace

import numpy as np

from kernel_matrix.analysis.questions import QuestionOptions
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.variance import variance
from tests.analysis.made import over_sessions, tables

CANDIDATE_NS = 1e5


def measured(rng, *, spread=0.01, sessions=3, unit_effect=0.0, **columns):
    noise = np.exp(rng.normal(0, spread, (sessions, 2)))
    effect = np.exp(unit_effect)
    return over_sessions([(2 * CANDIDATE_NS * a, CANDIDATE_NS * b * effect) for a, b in noise], **columns)


def answers(rows, samples=None, batches=None, **request):
    made = rows if isinstance(rows, Tables) else tables(rows)
    given = {"samples": samples, "batches": batches}
    made = replace(made, **{name: frame.lazy() for name, frame in given.items() if frame is not None})
    return {answer.name: answer for answer in variance(made, QuestionOptions(**request))}
