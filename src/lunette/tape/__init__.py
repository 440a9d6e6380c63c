"""An autograd tape over every op: it records values, runs the ops' verbs, and knows no backend."""

from lunette.tape import functions
from lunette.tape.checking import check_gradient
from lunette.tape.duals import DualArray
from lunette.tape.ids import Id
from lunette.tape.rules import RULES, Each, Rule, elementwise, register
from lunette.tape.tape import Tape
from lunette.tape.window import CURVATURES

__all__ = [
    "CURVATURES",
    "RULES",
    "DualArray",
    "Each",
    "Id",
    "Rule",
    "Tape",
    "check_gradient",
    "elementwise",
    "functions",
    "register",
]
