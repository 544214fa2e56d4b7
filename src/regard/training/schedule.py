"""The learning rate as a function of the step."""

import math


class Schedule:
    """Computes the factor of the peak learning rate at each step.

    With warmup ``w`` and ``n`` steps in all, step ``t`` (from 0) gives ``min(1, (t + 1) / w)`` times

    - ``constant``, ``plateau``: 1
    - ``inverse_sqrt``: √(max(w, 1) / max(t + 1, w, 1))   (Vaswani et al. 2017, section 5.3, with its peak at 1)
    - ``linear``: (n − t) / (n − w) after the warmup
    - ``cosine``: (1 + cos(π (t − w) / (n − w))) / 2 after the warmup (Loshchilov & Hutter 2017, equation 5)

    ``plateau`` halves the factor permanently whenever `observe` gets ``patience`` losses in a row that are not below
    the best one. A checkpoint saves the attributes of the object.

    Args:
        name: one of ``regard.training.config.ScheduleName``.
        warmup: steps of linear warmup.
        total: number of all steps; only ``linear`` and ``cosine``, which decay to 0, use it.
        patience: number of validations; only ``plateau`` uses it.
    """

    def __init__(self, name: str, warmup: int = 0, total: int = 1, patience: int = 2):
        self.name = name
        self.warmup = warmup
        self.total = total
        self.patience = patience
        self.scale = 1.0
        self.best = math.inf
        self.waited = 0

    def __call__(self, step: int) -> float:
        """Returns the factor at a step, counted from 0."""
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return rise * self.scale * self._decay(step)

    def observe(self, loss: float) -> None:
        """Counts the loss of a validation; only ``plateau`` uses it."""
        if self.name != "plateau":
            return
        if loss < self.best:
            self.best, self.waited = loss, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            self.scale, self.waited = self.scale / 2, 0

    def _decay(self, step: int) -> float:
        if self.name == "inverse_sqrt":
            return math.sqrt(max(self.warmup, 1) / max(step + 1, self.warmup, 1))
        if self.name in ("linear", "cosine"):
            fraction = (step - self.warmup) / max(1, self.total - self.warmup)
            fraction = min(1.0, max(0.0, fraction))
            return 1 - fraction if self.name == "linear" else (1 + math.cos(math.pi * fraction)) / 2
        return 1.0
