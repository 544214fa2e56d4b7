"""The verbs attend, observe and plan, the planner and the backends."""

from regard.attention.backends.backend import Backend
from regard.attention.execution import register_backend, unregister_backend
from regard.attention.flex_attention import flex_attention
from regard.attention.planner import Plan
from regard.attention.problem import Problem
from regard.attention.readings import Observed, Readings
from regard.attention.result import Attended
from regard.attention.verbs import attend, attend_with_weights, observe, plan
from regard.names.lazy_names import public_names

__all__ = [
    "Attended",
    "Backend",
    "Observed",
    "Plan",
    "Problem",
    "Readings",
    "attend",
    "attend_with_weights",
    "flex_attention",
    "observe",
    "plan",
    "register_backend",
    "unregister_backend",
]

__dir__ = public_names(__name__)
