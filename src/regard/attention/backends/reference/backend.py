"""``reference``: the specification itself, on the whole grid at once. Quadratic memory; everything, everywhere."""

from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.result import Attended
from regard.attention.steps import mix, weigh, whole


class Reference(Backend):
    """Every step as the equation says it."""

    name = "reference"
    why = "so few pairs that computing them all at once costs least"
    reads = True
    linear = False
    measured = ("small-additive", "small-lengths")

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        return self._run(problem, gatherer).output

    def run_with_weights(self, problem: Problem) -> Attended:
        return self._run(problem, None)

    def _run(self, problem: Problem, gatherer: Gatherer | None) -> Attended:
        inputs = whole(problem)
        steps = weigh(problem, inputs)
        if gatherer is not None:
            gatherer.add(steps.masked, steps.weights, problem.grid)
        return Attended(mix(problem, inputs, steps.weights), steps.weights)
