"""``regard.survey(model, texts)``: statistics of every head over a corpus."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, DataError, KindError, RegardError
from regard.shapes.checks import check_module, type_text, whole_number
from regard.watching.corpus import (
    CorpusBatch,
    CorpusTokenizer,
    Forward,
    Text,
    batches,
    call_model,
    check_vocabulary,
    texts_by_length,
)
from regard.watching.head_statistics import StatisticsReader, TokenizedTexts
from regard.watching.head_survey import Survey
from regard.watching.interception import evaluation_mode
from regard.watching.survey_state import (
    SurveyPart,
    SurveyState,
    agreement,
    gathered_values,
    merged_parts,
    model_digest,
    processes,
)
from regard.watching.watch import watch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def survey(
    model: nn.Module,
    texts: Iterable[Text],
    tokenizer: Any = None,
    *,
    batch: int = 8,
    max_length: int | None = None,
    special: Sequence[int] = (),
    offsets: int = 4,
    layers: int | Sequence[int] | None = None,
    forward: Forward | None = None,
    state: str | os.PathLike[str] | None = None,
    mesh: "DeviceMesh | None" = None,
) -> Survey:
    """Computes statistics of every head over a corpus: entropy, sinks, positional, same-token and induction patterns.

    ::

        result = regard.survey(model, lines, tokenizer, state="survey")
        print(result)                                  # a table, a row for each head
        result.figure().savefig("heads.png")           # heads × layers, each statistic
        result.prunable()                              # heads that may do little, and why

    Every statistic is a mean over counted queries: tokens that are not special and see a key. Special tokens count as
    keys, except in the shares at offsets, of the same token and of induction (`regard.watching.STATISTICS`). Texts are
    run without padding: those of a batch that have the same number of tokens together. Weights are read tile by tile,
    so memory is linear in the length of a text and does not depend on the number of texts.

    Under ``torchrun``, or in processes that have a group of ``torch.distributed``, each process runs a part of the
    batches and all get the result. Every process must be given the same texts. With ``mesh`` all of them run every text
    together, and each holds a part of its tokens: for texts that are too long for one process.

    Args:
        model: any model whose attention `regard.watch` sees. It runs in evaluation mode, without gradients, and its
            modes are restored. The encoder runs of an encoder-decoder of Hugging Face.
        texts: the corpus: an iterable, which may be larger than memory, of texts; or of token ids.
        tokenizer: one of Hugging Face (``transformers`` or ``tokenizers``), or a function text → ids. None: texts are
            ids.
        batch: the number of texts that are read at once; at most one batch is lost if the process is killed.
        max_length: the number of tokens to which a longer text is cut; None: no text is cut. `Survey.cut` counts the
            cut texts.
        special: ids of special tokens, besides those that the tokenizer marks.
        offsets: the largest distance in tokens whose share of weight is computed.
        layers: the numbers of the layers, from 0; None: all.
        forward: ``(model, ids [batch, tokens])``, which calls the model where ``model(ids)`` would be wrong. With
            ``mesh``, ids are this process's part of the tokens, and the model runs within
            `regard.distributed.sequence`.
        state: a folder. After each batch the sums are written there, so that the same call resumes a killed one, in any
            number of processes, and more texts can follow later. None: nothing is written.
        mesh: a mesh of one axis with all processes, each of which holds a part of every text; the attention must be
            that of regard. None: every process runs whole texts.

    Returns:
        the statistics of all heads.

    Raises:
        KindError, ArgumentError: bad arguments; no text has a token that is not special.
        DataError: a text that the tokenizer or the model cannot take, by its number; a state of another survey.
        UnseenError: the model's attention cannot be seen.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> result = regard.survey(model, [[2, 5, 6, 7, 8], [2, 9, 5, 6]], special=[2])
        >>> result.texts, result.tokens, [(head.layer, head.head) for head in result.heads]
        (2, 7, [(0, 0), (0, 1), (1, 0), (1, 1)])
        >>> round(result.heads[0].values["relative_entropy"], 2)  # the weights of an untrained model are nearly uniform
        1.0
    """
    check_module("model", model)
    size = whole_number("batch", batch, low=1)
    if max_length is not None:
        whole_number("max_length", max_length, low=1)
    offsets = whole_number("offsets", offsets, low=0, high=64)
    if forward is not None and not callable(forward):
        raise KindError(f"forward must be a function of the model and ids; it is {type_text(forward)}")
    reader = CorpusTokenizer(tokenizer, special, max_length)
    run = _Run(model, reader, offsets, layers, forward or call_model, mesh)
    options = {
        "model": model_digest(model) if state is not None else "",
        "tokenizer": reader.describe(),
        "batch": str(size),
        "max_length": str(max_length),
        "special": str(sorted(special)),
        "offsets": str(offsets),
        "layers": str(layers),
    }
    with evaluation_mode(model), processes() as (rank, count):
        if mesh is not None and mesh.size() != count:
            raise ArgumentError(f"mesh must have all {count} processes, on one axis; it has {mesh.size()}")
        part = SurveyPart(rank, count) if mesh is None else SurveyPart()
        parts = _read(run, batches(texts, size), lambda: SurveyState(state, options), part, rank, count)
    whole = merged_parts(parts)
    if not whole.tokens:
        raise ArgumentError("texts must hold a token that is not special; there is none")
    return Survey.of(whole, offsets)


def _read(
    run: "_Run",
    corpus: Iterable[CorpusBatch],
    open_state: Callable[[], SurveyState],
    part: SurveyPart,
    rank: int,
    count: int,
) -> list[SurveyPart]:
    """Returns the parts of all processes and of earlier runs.

    The function ``open_state`` reads the state of earlier runs. The first process writes the ``part`` where all read
    the same.
    """
    with ExitStack() as stack:
        with agreement(count):  # no process writes before all have read the state
            state = open_state()
            stack.enter_context(state.locked(rank))
        with agreement(count):
            skipped = 0
            for batch in corpus:
                if state.is_done(batch):
                    skipped += batch.digest()
                elif batch.number % part.processes == part.rank:
                    run.read(batch, part)
                    part.finish(batch)
                    if rank == part.rank:
                        state.save(part)
            state.check(skipped)
        return [*state.earlier, *gathered_values(part, part.processes)]


@dataclass(eq=False)
class _Run:
    """Reads batches, with the arguments of `survey` on which this depends."""

    model: nn.Module
    tokenizer: CorpusTokenizer
    offsets: int
    layers: int | Sequence[int] | None
    forward: Forward
    mesh: "DeviceMesh | None"

    @cached_property
    def device(self) -> torch.device:
        """The device of the model's inputs."""
        # Weights that are loaded when they are used are on the meta device until then, where no input can be.
        tensors = (*self.model.parameters(), *self.model.buffers())
        return next((tensor.device for tensor in tensors if not tensor.is_meta), torch.device("cpu"))

    def read(self, batch: CorpusBatch, part: SurveyPart) -> None:
        """Adds the sums of one batch; the part is unchanged if it fails."""
        sums = SurveyPart()
        before = self.tokenizer.cut
        for texts in texts_by_length(batch, self.tokenizer, self.device):
            self._run(texts, sums)
            sums.corpus += texts.digest()
        sums.cut = self.tokenizer.cut - before
        part.merge(sums)

    @torch.no_grad()
    def _run(self, texts: TokenizedTexts, sums: SurveyPart) -> None:
        check_vocabulary(texts.ids, self.model)
        reader = StatisticsReader(texts, self.offsets)
        with watch(self.model, read=reader.readings, layers=self.layers) as seen:
            try:
                self._forward_parts(texts.ids)
            except RegardError:
                raise
            except Exception as error:
                numbers = ", ".join(str(number) for number in texts.numbers)
                length = texts.ids.shape[1]
                raise DataError(f"the model cannot run text {numbers} of {length} tokens: {error}") from error
        for call in (each.gathered() for each in seen.calls):
            if call.signed:
                sums.ignored[call.name] = "signed weights, whose rows have any sum: read single calls by regard.watch"
            elif reader.fits(call):
                sums.add(call.name, reader.sums(call))
            else:
                shape = f"{call.queries} queries and {call.keys} keys for {texts.ids.shape[1]} tokens"
                sums.ignored[call.name] = "cross-attention" if call.kind == "cross" else shape
        sums.tokens += int(texts.counted.sum())

    def _forward_parts(self, ids: Tensor) -> None:
        """Calls the model with whole texts, or with this process's part of them."""
        if self.mesh is None:
            self.forward(self.model, ids)
            return
        from regard.distributed import Shards, sequence  # imports torch.distributed's meshes

        shards = Shards.contiguous(ids.shape[1], self.mesh)
        with sequence(shards):
            self.forward(self.model, shards.cut(ids, 1))
