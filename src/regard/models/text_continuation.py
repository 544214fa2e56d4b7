"""Continues a text token by token with a language model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.models.language_model import LanguageModel
from regard.models.search.token_choice import TokenChoice
from regard.tracing.transforms import sent


@dataclass(frozen=True)
class TokenContinuation:
    """The continuation of a text by a language model: the new tokens, without the one that ends the text; log p of
    these in nats, without temperature, of the ending token too; whether the model ended the text; and log p of each
    token after the first tokens, ``float32 [vocabulary]``."""

    tokens: list[int]
    log_probability: float
    ended: bool
    first: Tensor


@torch.inference_mode()
def continue_tokens(
    model: LanguageModel,
    given: Sequence[int],
    most: int,
    choice: TokenChoice,
    *,
    end: int,
    forbidden: Sequence[int] = (),
    generator: torch.Generator | None = None,
) -> TokenContinuation:
    """Continues a sequence of at least one token by at most ``most`` ones, by a model in evaluation mode.

    The model reads at most its ``context``: the last tokens of ``given``, and when the context is full, its last half
    again, so that each new token is predicted from at least half a context where the text has so many tokens. The token
    ``end`` ends the text; ``generator`` None: PyTorch's default.
    """
    device = next(model.parameters()).device
    context = model.config.context
    text = list(given)
    hidden = sent(torch.tensor(list(forbidden), dtype=torch.int64, device="cpu"), device)
    unread = sent(torch.tensor([text[-context:]], device="cpu"), device)
    caches, first, ended = model.start(), None, False
    chosen: list[Tensor] = []  # log p of each new token, on the device
    while True:
        log_probabilities, caches = model.step(unread, caches)
        first = log_probabilities[0] if first is None else first
        if len(text) - len(given) >= most:
            break
        allowed = log_probabilities.index_fill(1, hidden, -torch.inf)
        drawn = choice.draw(allowed, generator)
        chosen.append(log_probabilities[0].gather(0, drawn))
        token = int(drawn)  # an accelerator is waited for here, once a token
        if token == end:
            ended = True
            break
        text.append(token)
        if len(text) - len(given) >= most:
            break
        unread = drawn[None]
        if caches[0].length >= context:
            caches = model.start()
            unread = sent(torch.tensor([text[-max(1, context // 2) :]], device="cpu"), device)
    total = sum(torch.cat(chosen).tolist()) if chosen else 0.0
    return TokenContinuation(text[len(given) :], total, ended, first.cpu())
