"""Tasks: one folder for each, against the interface of `regard.training.task`; `registry` finds them by name."""
