"""Matrix × problems × candidates × what this host has → cells, each runnable here or with a reason.

Reading order: :mod:`.cell` (the nouns), :mod:`.facts` (what the host has), :mod:`.selection` (problems and candidates),
:mod:`.settings` (protocol and policy per cell), :mod:`.hurdles` (why not here), :mod:`.identity` (cell ids),
:mod:`.planning` (all together), :mod:`.filters` and :mod:`.totals` (what is done with the cells).
"""

from runner.plan.cell import Cell, Hurdle, Reason
from runner.plan.cost import expected_seconds
from runner.plan.facts import HostFacts, devices_matching
from runner.plan.filters import CellFilter, parse_filter, parse_shard, shard
from runner.plan.planning import Plan, make_plan
from runner.plan.selection import Selected, Selection, load_selection
from runner.plan.totals import Tally, Totals, tally

__all__ = [
    "Cell",
    "CellFilter",
    "HostFacts",
    "Hurdle",
    "Plan",
    "Reason",
    "Selected",
    "Selection",
    "Tally",
    "Totals",
    "devices_matching",
    "expected_seconds",
    "load_selection",
    "make_plan",
    "parse_filter",
    "parse_shard",
    "shard",
    "tally",
]
