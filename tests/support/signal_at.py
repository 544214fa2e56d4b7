"""A reporter that interrupts its own process at a chosen step."""

import os

from regard.training.reporter import SilentReporter


class SignalAt(SilentReporter):
    """Sends a signal to its own process when a step has been reported so many times."""

    def __init__(self, step, number):
        self.left, self.number = step, number

    def step(self, fraction, text):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)
