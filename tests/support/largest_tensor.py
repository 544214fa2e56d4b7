"""How large the largest tensor of a calculation is."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """How many numbers the largest tensor holds that an operator of PyTorch returns in this context."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        tensors = [one for one in (found if isinstance(found, tuple) else (found,)) if torch.is_tensor(one)]
        if max((one.numel() for one in tensors), default=0) > self.numbers:
            self.numbers = max(one.numel() for one in tensors)
            self.operator = function
        return found
