"""The four verbs, the planner and the backends."""

from regard.attention.explanation import Explanation
from regard.attention.planner import Plan
from regard.attention.readings import Observed, Readings
from regard.attention.verbs import Weighed, attend, explain, observe, plan, weigh

__all__ = ["Explanation", "Observed", "Plan", "Readings", "Weighed", "attend", "explain", "observe", "plan", "weigh"]
