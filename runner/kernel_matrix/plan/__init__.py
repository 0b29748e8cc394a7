"""Matrix × problems × candidates × what this host has → cells, each runnable here or with a reason.

Reading order: :mod:`.cell` (the nouns), :mod:`.facts` (what the host has), :mod:`.selection` (problems and candidates),
:mod:`.settings` (protocol and policy per cell), :mod:`.hurdles` (why not here), :mod:`.identity` (cell ids),
:mod:`.planning` (all together), :mod:`.filters` and :mod:`.totals` (what is done with the cells).
"""

from kernel_matrix.plan.cell import Cell, Skip, SkipReason
from kernel_matrix.plan.cost import expected_seconds
from kernel_matrix.plan.filters import CellFilter, parse_filter, parse_shard, shard
from kernel_matrix.plan.host_inventory import HostInventory, devices_matching
from kernel_matrix.plan.planning import Plan, make_plan
from kernel_matrix.plan.selection import SelectedProblem, Selection, load_selection
from kernel_matrix.plan.totals import CellCounts, PlanTotals, tally

__all__ = [
    "Cell",
    "CellCounts",
    "CellFilter",
    "HostInventory",
    "Plan",
    "PlanTotals",
    "SelectedProblem",
    "Selection",
    "Skip",
    "SkipReason",
    "devices_matching",
    "expected_seconds",
    "load_selection",
    "make_plan",
    "parse_filter",
    "parse_shard",
    "shard",
    "tally",
]
