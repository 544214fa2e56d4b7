"""Linear attention with decays and the delta rule in plain PyTorch, a chunk of tokens at a time.

The equations of Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", §3, and
the decays of Yang et al. 2023, "Gated Linear Attention Transformers", §4: within a chunk, queries and keys are
multiplied with the decay since the chunk's first token, and divided by it.
"""

import torch
from torch import Tensor

CHUNK = 64


def chunked(query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor | None = None) -> Tensor:
    """Returns the outputs ``[batch, heads, length, dim]``.

    Args:
        query, key, value: ``[batch, heads, length, dim]``; the length is a multiple of the chunk's, or the only chunk.
        log_decay: ``[batch, heads, length, dim or 1]``.
        beta: the strength of each write under the delta rule, ``[batch, heads, length]``; None: values are added.
    """
    size = min(CHUNK, query.shape[2])
    query, key, value, log_decay = (part.unflatten(2, (-1, size)) for part in (query, key, value, log_decay))
    decay = log_decay.cumsum(3)
    queries, keys, faded = query * decay.exp(), key * (-decay).exp(), key * decay.exp()
    leaving, whole = key * (decay[..., -1:, :] - decay).exp(), decay[..., -1, :, None].exp()
    written = value
    if beta is not None:
        beta = beta.unflatten(2, (-1, size))[..., None]
        among = (beta * faded @ keys.mT).tril(-1) + torch.eye(size, dtype=key.dtype)
        solved = torch.linalg.solve_triangular(among, torch.cat((beta * value, beta * faded), -1), upper=False)
        written, faded = solved.split((value.shape[-1], key.shape[-1]), -1)
    within = (queries @ keys.mT).tril()
    state, outputs = torch.zeros_like(key[:, :, 0].mT @ value[:, :, 0]), []
    for chunk in range(query.shape[2]):
        new = written[:, :, chunk]
        if beta is not None:
            new = new - faded[:, :, chunk] @ state
        outputs.append(queries[:, :, chunk] @ state + within[:, :, chunk] @ new)
        state = whole[:, :, chunk] * state + leaving[:, :, chunk].mT @ new
    return torch.cat(outputs, 2)
