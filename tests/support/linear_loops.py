"""The recurrences of linear attention as the papers write them, token by token; the oracle of its tests."""

import torch


def by_loops(query, key, value, decay=None, beta=None, state=None, begins=None):
    """Outputs and last state by equation 10 of gated DeltaNet, or the older ones without a decay or a strength.

    Where a document begins, the state is a new one.
    """
    batch, heads, length, dim = query.shape
    outputs = torch.zeros(value.shape, dtype=value.dtype)
    states = torch.zeros(batch, heads, dim, value.shape[-1], dtype=value.dtype)
    for b in range(batch):
        for h in range(heads):
            matrix = torch.zeros(states.shape[2:], dtype=value.dtype) if state is None else state[b, h]
            for t in range(length):
                q, k, v = query[b, h, t], key[b, h, t], value[b, h, t]
                if begins is not None and begins[b, t]:
                    matrix = torch.zeros(states.shape[2:], dtype=value.dtype)
                if decay is not None:
                    matrix = torch.diag(decay[b, h, t].exp().expand(dim)) @ matrix
                if beta is None:
                    matrix = matrix + torch.outer(k, v)
                else:
                    erased = torch.eye(dim, dtype=v.dtype) - beta[b, h, t] * torch.outer(k, k)
                    matrix = erased @ matrix + beta[b, h, t] * torch.outer(k, v)
                outputs[b, h, t] = matrix.T @ q
            states[b, h] = matrix
    return outputs, states


def weights_by_loops(query, key, decay=None, beta=None):
    """The weights ``[batch, heads, length, length]`` that a recurrence implies: its outputs for unit vectors."""
    batch, heads, length, _ = query.shape
    unit = torch.eye(length, dtype=query.dtype).expand(batch, heads, length, length)
    return by_loops(query, key, unit, decay, beta)[0]
