"""A search by both predictions of a transcriber: its decoder's next token, and its alignment head's texts."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import SearchStep
from regard.models.search import SearchState
from regard.models.speech.ctc import AlignmentHead
from regard.models.text_predictor import TextPredictor
from regard.names.missing_names import hinted
from regard.tracing.transforms import exact_dtype, is_on_host

LOWEST_LOG_PROBABILITY = -1000.0
"""Log-probability of a text that no path gives: a search goes on even if no hypothesis is possible."""


class Paths(NamedTuple):
    """Log-probabilities of all paths that give a text, up to each annotation; float64 ``[rows, annotations + 1]``: of
    those that stand at the text's last token, and of those at a blank."""

    at_token: Tensor
    at_blank: Tensor

    @property
    def either(self) -> Tensor:
        """The log-probabilities of the paths at either."""
        return torch.logaddexp(self.at_token, self.at_blank)


@dataclass(frozen=True)
class Aligned:
    """The alignment head's probabilities of a text during a search.

    ``sentence [rows]`` is the row of a hypothesis in ``log_probabilities``, of the tokens for each annotation, float64
    ``[sentences, annotations, vocabulary]``, with blanks alone behind the last one. ``following [rows, vocabulary]``
    are log-probabilities that a text begins with this one and the next token; for ``eos``, that it is this one.
    """

    sentence: Tensor
    log_probabilities: Tensor
    last: Tensor
    paths: Paths
    following: Tensor

    def reordered(self, index: Tensor) -> "Aligned":
        """Returns the rows ``index [rows]``, in that order; a row may occur several times."""
        return replace(
            self,
            sentence=self.sentence[index],
            last=self.last[index],
            paths=Paths(*(tensor[index] for tensor in self.paths)),
            following=self.following[index],
        )


@hinted
@dataclass(frozen=True)
class JointState:
    """The `SearchState` of a `JointDecoder`: of the decoder, and of the alignment before the decoder's last token."""

    decoder: SearchState
    aligned: Aligned
    is_first: bool = True

    def select(self, index: Tensor) -> "JointState":
        return replace(self, decoder=self.decoder.select(index), aligned=self.aligned.reordered(index))

    def reordered(self, index: Tensor) -> "JointState":
        return replace(self, decoder=self.decoder.reordered(index), aligned=self.aligned.reordered(index))


class JointDecoder:
    """A decoder for a search that judges the next token by a model's decoder and by its alignment head, of ``weight``
    λ.

    .. math:: score(c | h) = (1 − λ) log p_attention(c | h) + λ log (p_CTC(h c …) / p_CTC(h …))

    Watanabe et al. 2017, "Hybrid CTC/attention architecture for end-to-end speech recognition", section III and
    algorithm 2. ``p_CTC(h …)`` is the probability of all texts that begin with h (Graves 2008, section 7.5.2); for
    ``eos`` it is that of h itself. Attention alone may repeat or leave out a part of a sound, since it has no record of
    the parts that it has read. The alignment head gives such a text a low probability.
    """

    def __init__(self, model: TextPredictor, head: AlignmentHead, weight: float):
        self.model, self.head, self.weight = model, head, weight
        self.eos: int = model.config.eos

    def start(self, encoded: Encoded) -> JointState:
        """Returns the state before the first token."""
        log_probabilities = self.head(encoded.annotations)
        log_probabilities = log_probabilities.to(exact_dtype(log_probabilities.device))
        position = torch.arange(log_probabilities.shape[1], device=log_probabilities.device)
        behind = (position >= encoded.lengths[:, None])[..., None]
        only_blank = torch.full_like(log_probabilities[0, 0], -torch.inf)
        only_blank[self.head.blank] = 0.0
        log_probabilities = torch.where(behind, only_blank, log_probabilities)
        rows = len(log_probabilities)
        blanks = log_probabilities[..., self.head.blank].cumsum(-1)
        nothing = Paths(
            blanks.new_full((rows, blanks.shape[1] + 1), -torch.inf),
            torch.cat((blanks.new_zeros(rows, 1), blanks), dim=1),
        )
        sentence = torch.arange(rows, device=blanks.device)
        # Before the first token there is none that could be repeated.
        last = torch.full_like(sentence, -1)
        aligned = Aligned(sentence, log_probabilities, last, nothing, log_probabilities.new_zeros(rows, 0))
        return JointState(self.model.start(encoded), self._followed(aligned, is_first=True))

    def step(self, tokens: Tensor, state: JointState) -> SearchStep:
        """Runs one step of a search: see `regard.models.search.SearchableDecoder`."""
        step = self.model.step(tokens, state.decoder)
        aligned = state.aligned
        begun = aligned.following.new_zeros(len(tokens))
        if not state.is_first:
            begun = aligned.following.gather(1, tokens[:, None])[:, 0]
            aligned = self._followed(self._extended(aligned, tokens))
        # Where nothing is possible any more, all that may follow is equally improbable.
        of_alignment = (
            (aligned.following - begun[:, None])
            .nan_to_num(nan=LOWEST_LOG_PROBABILITY, neginf=LOWEST_LOG_PROBABILITY)
            .clamp(LOWEST_LOG_PROBABILITY, 0.0)
        )
        joint = (1.0 - self.weight) * step.log_probabilities + self.weight * of_alignment.float()
        return SearchStep(joint, JointState(step.state, aligned, is_first=False), step.weights)

    def _extended(self, aligned: Aligned, tokens: Tensor) -> Aligned:
        """Returns the texts with one more token each."""
        before = aligned.paths
        of_token = aligned.log_probabilities[aligned.sentence, :, tokens]
        of_blank = aligned.log_probabilities[aligned.sentence, :, self.head.blank]
        # Between two equal tokens there is a blank.
        entering = torch.where((tokens == aligned.last)[:, None], before.at_blank, before.either)
        impossible = entering.new_full((len(tokens),), -torch.inf)
        at_token, at_blank = [impossible], [impossible]
        for t in range(of_token.shape[1]):
            stood = at_token[-1]
            at_token.append(torch.logaddexp(stood, entering[:, t]) + of_token[:, t])
            at_blank.append(torch.logaddexp(stood, at_blank[-1]) + of_blank[:, t])
        paths = Paths(torch.stack(at_token, dim=1), torch.stack(at_blank, dim=1))
        return replace(aligned, last=tokens, paths=paths)

    def _followed(self, aligned: Aligned, *, is_first: bool = False) -> Aligned:
        """Returns the texts with the log-probabilities of the next tokens."""
        paths, log_probabilities = aligned.paths, aligned.log_probabilities
        either = paths.either
        entering = either[:, :-1]
        top = entering.amax(dim=1, keepdim=True).clamp(min=torch.finfo(entering.dtype).min)
        powers = (entering - top).exp()
        if is_on_host(powers):  # without a copy of a sentence's probabilities for each of its texts
            sums = powers.new_empty(len(powers), log_probabilities.shape[2])
            for sentence in aligned.sentence.unique().tolist():
                rows = (aligned.sentence == sentence).nonzero()[:, 0]
                sums[rows] = powers[rows] @ log_probabilities[sentence].exp()
        else:
            sums = (powers[:, None] @ log_probabilities.exp()[aligned.sentence])[:, 0]
        following = sums.log() + top
        if not is_first:
            of_last = log_probabilities[aligned.sentence, :, aligned.last]
            of_last = (paths.at_blank[:, :-1] + of_last).logsumexp(dim=1, keepdim=True)
            following.scatter_(1, aligned.last[:, None], of_last)
        following[:, self.eos] = either[:, -1]
        return replace(aligned, following=following)
