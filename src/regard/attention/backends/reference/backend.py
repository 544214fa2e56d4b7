"""``reference``: the specification itself, on the whole grid at once. Quadratic memory; everything, everywhere."""

from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer
from regard.attention.steps import mix, weigh, whole


class Reference(Backend):
    """Every step as the equation says it."""

    name = "reference"

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        inputs = whole(problem)
        steps = weigh(problem, inputs)
        if gatherer is not None:
            gatherer.add(steps.masked, steps.weights, problem.grid)
        return mix(problem, inputs, steps.weights)
