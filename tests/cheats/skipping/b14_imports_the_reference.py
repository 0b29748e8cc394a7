"""Takes the reference itself, from wherever it may lie.

class: B14
expect: load_error
problem: relu
stopped-by: isolation
finding: fallback
"""

from problem import Model


class ModelNew(Model):
    pass
