"""Who is told of each problem that a verb or a layer runs: `regard.watch` registers itself here."""

from collections.abc import Callable

from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended

Execution = Callable[[Problem, str, Gatherer | None, bool], Attended]
"""``(problem, backend, gatherer, need_weights) -> Attended``, as `regard.attention.execution.execute`."""

Listener = Callable[[Execution, Problem, str, Gatherer | None, bool], Attended]
"""Gets the execution and its arguments, and gives what the execution gives."""

LISTENERS: list[Listener] = []
"""Empty, or one listener."""
