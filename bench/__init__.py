"""The benchmark: this machine, regard and every installed peer side by side, in one run."""
