"""Greedy search and sampling: hypotheses that grow token by token, each alone."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.models.encoders import Encoded
from regard.models.search.decoder_protocol import Hypothesis, Limits, SearchableDecoder
from regard.models.search.token_choice import TokenChoice
from regard.tracing.transforms import exact_dtype, sent

SAMPLED_ROWS = 1024
"""Samples that are drawn at once, unless one sentence has more."""

Pick = Callable[[Tensor, Tensor], Tensor]
"""Chooses tokens from log-probabilities ``[alive, vocabulary]`` of the rows ``alive``, which have not ended."""


def greedy(
    decoder: SearchableDecoder,
    encoded: Encoded,
    *,
    bos: int,
    eos: int,
    max_length: int | Sequence[int] = 100,
    forbidden: Sequence[int] = (),
) -> list[Hypothesis]:
    """Searches greedily: each token is the most likely one.

    Args:
        decoder: the decoder.
        encoded: the encoder's output for a batch.
        bos: token before the first one.
        eos: token that ends a sentence.
        max_length: largest number of tokens before ``eos``; one for all sentences, or one for each.
        forbidden: tokens that are never chosen; ``bos`` is never chosen either.

    Returns:
        One hypothesis for each row.

    Raises:
        ArgumentError: ``max_length`` is negative, or has not one number for each row.

    Example:
        >>> import torch
        >>> from regard import models
        >>> class Chain:  # p(next token | last token); 0 is bos, 1 is eos
        ...     table = torch.tensor([[0, 0, 0.6, 0.4], [0, 1, 0, 0], [0, 0.5, 0.3, 0.2], [0, 0.9, 0.1, 0]])
        ...     start = select = lambda self, _: self
        ...     step = lambda self, tokens, state: (self.table[tokens].log(), self, None)
        >>> encoded = models.Encoded(torch.zeros(1, 1, 1), torch.tensor([1]))
        >>> best = models.greedy(Chain(), encoded, bos=0, eos=1)[0]
        >>> best.tokens, torch.tensor(best.log_probability).exp()  # 0.6 · 0.5; the tokens [3] have 0.4 · 0.9
        ([2], tensor(0.3000))
    """
    limits = Limits(bos, eos, max_length, forbidden)
    return _search(decoder, encoded, limits, lambda _: lambda scores, _: scores.argmax(-1))


def sample(
    decoder: SearchableDecoder,
    encoded: Encoded,
    *,
    bos: int,
    eos: int,
    max_length: int | Sequence[int] = 100,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    forbidden: Sequence[int] = (),
    samples: int = 1,
) -> list[Hypothesis]:
    """Draws each token from ``softmax(log p / temperature)``.

    Args:
        decoder, encoded, bos, eos, max_length, forbidden: as for `greedy`.
        temperature: above 0; below 1, likely tokens become more likely; above 1, less likely.
        top_k: number of most likely tokens to draw from (Fan et al. 2018, section 5.4); 0: all.
        top_p: draw from the smallest set of most likely tokens whose probabilities add up to this, in (0, 1] (nucleus
            sampling, Holtzman et al. 2020, section 3.1); 1: all.
        generator: random number generator, with which the draws of a row depend on the other rows; or one for each
            row, with which they do not; None: PyTorch's default.
        samples: hypotheses of each row.

    Returns:
        ``samples`` hypotheses for each row, side by side; their score is the log-probability without temperature.

    Raises:
        ArgumentError: ``temperature`` isn't above 0, ``top_k`` is negative, ``top_p`` is outside (0, 1], ``samples`` is
            below 1, or there are neither one generator nor as many as rows.

    Example:
        >>> import torch
        >>> from regard import models
        >>> class Chain:  # p(next token | last token); 0 is bos, 1 is eos
        ...     table = torch.tensor([[0, 0, 0.6, 0.4], [0, 1, 0, 0], [0, 0.5, 0.3, 0.2], [0, 0.9, 0.1, 0]])
        ...     start = select = lambda self, _: self
        ...     step = lambda self, tokens, state: (self.table[tokens].log(), self, None)
        >>> encoded = models.Encoded(torch.zeros(1, 1, 1), torch.tensor([1]))
        >>> seeded = torch.Generator().manual_seed(0)
        >>> drawn = models.sample(Chain(), encoded, bos=0, eos=1, samples=1000, generator=seeded)
        >>> round(sum(one.tokens == [2] for one in drawn) / 1000, 1)  # its probability is 0.6 · 0.5
        0.3
    """
    if samples < 1:
        raise ArgumentError(f"samples must be at least 1; it is {samples}")
    if not temperature > 0:
        raise ArgumentError(f"temperature must be above 0; it is {temperature}")
    choice, limits = TokenChoice(temperature, top_k, top_p), Limits(bos, eos, max_length, forbidden)
    if generator is None or isinstance(generator, torch.Generator):
        return _search(decoder, encoded, limits, lambda _: lambda scores, _: choice.draw(scores, generator), samples)
    generators = list(generator)
    if len(generators) != len(encoded.lengths):
        raise ArgumentError(
            f"generator must be one, or one for each of {len(encoded.lengths)} rows; there are {len(generators)}"
        )

    def picker(rows: Sequence[int]) -> Pick:
        def pick(scores: Tensor, alive: Tensor) -> Tensor:
            # Numbers for samples that have ended too, so that a row's draws do not depend on when others end.
            dtype = exact_dtype(scores.device)
            own = (generators[row] for row in rows)
            numbers = [torch.rand(samples, generator=one, device=one.device, dtype=dtype) for one in own]
            return choice.at(scores, sent(torch.cat(numbers), scores.device)[alive])

        return pick

    return _search(decoder, encoded, limits, picker, samples)


@torch.no_grad()
def _search(
    decoder: SearchableDecoder,
    encoded: Encoded,
    limits: Limits,
    picker: Callable[[Sequence[int]], Pick],
    samples: int = 1,
) -> list[Hypothesis]:
    """Returns ``samples`` hypotheses for each row; ``picker`` makes the function that chooses tokens of some rows."""
    rows = len(encoded.lengths)
    if not rows:
        return []
    state, lengths = decoder.start(encoded), torch.tensor(limits.lengths(rows), device="cpu")
    if samples == 1:
        return _run(decoder, state, encoded.lengths, lengths, limits, picker(range(rows)))
    hypotheses: list[Hypothesis] = []
    for part in torch.arange(rows, device="cpu").split(max(1, SAMPLED_ROWS // samples)):
        longest = lengths[part].repeat_interleave(samples)
        index = sent(part, encoded.lengths.device).repeat_interleave(samples)
        pick = picker(part.tolist())
        hypotheses += _run(decoder, state.select(index), encoded.lengths[index], longest, limits, pick)
    return hypotheses


def _run(
    decoder: SearchableDecoder, state: Any, sources: Tensor, longest: Tensor, limits: Limits, pick: Pick
) -> list[Hypothesis]:
    """Returns a hypothesis for each row of the state, of ``sources`` annotations and at most ``longest`` tokens."""
    rows, shortest = len(sources), int(longest.min())
    longest = sent(longest, sources.device)
    alive = torch.arange(rows, device=sources.device)  # the unfinished sentence of each row of the state
    tokens = torch.full_like(alive, limits.bos)
    totals = torch.zeros(rows, dtype=exact_dtype(alive.device), device=alive.device)
    chosen: list[Tensor] = []  # each [rows]; eos for finished sentences
    step_weights: list[Tensor] = []  # each [rows, source]
    while len(alive):
        log_probabilities, state, weights = decoder.step(tokens, state)
        must_end = longest[alive] <= len(chosen) if len(chosen) >= shortest else None
        tokens = pick(limits.restrict(log_probabilities, must_end), alive)
        totals[alive] += log_probabilities.gather(1, tokens[:, None]).squeeze(1).to(totals.dtype)
        chosen.append(torch.full_like(totals, limits.eos, dtype=torch.int64).index_copy(0, alive, tokens))
        if weights is not None:
            step_weights.append(weights.new_zeros(rows, weights.shape[1]).index_copy(0, alive, weights))
        unfinished = (tokens != limits.eos).nonzero().squeeze(1)
        if len(unfinished) < len(alive):
            alive, tokens = alive[unfinished], tokens[unfinished]
            state = state.select(unfinished) if len(unfinished) else state
    sentences = torch.stack(chosen, dim=1).cpu()
    attention = torch.stack(step_weights, dim=1).float().cpu() if step_weights else None
    hypotheses = []
    for row, (total, source) in enumerate(zip(totals.tolist(), sources.tolist(), strict=True)):
        length = int((sentences[row] != limits.eos).sum())
        weights = None if attention is None else attention[row, :length, :source].clone()
        hypotheses.append(Hypothesis(sentences[row, :length].tolist(), total, total, weights))
    return hypotheses
