"""The verbs attend, observe and plan, the planner and the backends."""

from regard.attention.planner import Plan
from regard.attention.readings import Observed, Readings
from regard.attention.verbs import Weighed, attend, observe, plan, weigh

__all__ = ["Observed", "Plan", "Readings", "Weighed", "attend", "observe", "plan", "weigh"]
