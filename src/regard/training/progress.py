"""The progress of a training run: the counters that a checkpoint saves."""

from dataclasses import dataclass


@dataclass(slots=True)
class Progress:
    """The counters of a run. A resumed run needs these, the weights and the optimizer's state, and nothing else."""

    step: int = 0
    """Optimizer steps taken."""
    epoch: int = 0
    """Epochs completed."""
    position: int = 0
    """Batches of the current epoch that the model was trained on."""
    seconds: float = 0.0
    """Seconds of training and validation, summed over all interruptions."""
    best_bleu: float = -1.0
    """Best validation BLEU; −1 before the first validation."""
    best_step: int = 0
    """Step of the best validation."""
    waited: int = 0
    """Validations since the best one."""
    loss_sum: float = 0.0
    """Loss in nats, summed over the target tokens since the last validation."""
    tokens: int = 0
    """Target tokens since the last validation."""
    training_seconds: float = 0.0
    """Seconds of training since the last validation."""
    finished: str = ""
    """Why the run has ended; empty while it has not."""
