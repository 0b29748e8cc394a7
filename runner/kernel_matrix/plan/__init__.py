"""Expansion of a matrix into cells, each runnable on this host or skipped with a reason.

Reading order: :mod:`.cell` (the nouns), :mod:`.host_inventory` (devices, sandbox and images of the host),
:mod:`.selection` (problems and candidates), :mod:`.cell_settings` (protocol and policy per cell), :mod:`.skip_rules`
(why a cell is skipped), :mod:`.cell_id`, :mod:`.planning` (all together), :mod:`.filters` and :mod:`.totals` (users of
cells).
"""

from kernel_matrix.plan.cell import Cell, Skip, SkipReason
from kernel_matrix.plan.cost import expected_seconds
from kernel_matrix.plan.filters import CellFilter, parse_filter, parse_shard, shard
from kernel_matrix.plan.host_inventory import HostInventory, devices_matching, groups_matching, linked_by
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
    "groups_matching",
    "linked_by",
    "load_selection",
    "make_plan",
    "parse_filter",
    "parse_shard",
    "shard",
    "tally",
]
