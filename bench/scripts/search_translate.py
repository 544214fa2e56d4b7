"""Speed of beam search against a beam search in plain PyTorch, on the weights of a trained run.

    python -m bench.scripts.search_translate RUN DATA --source-column de --target-column en

The plain search is what a user writes without regard: all hypotheses of a batch are rows of one tensor, `topk` over
their extensions, `index_select` of the states, until every sentence has ended. A recurrent decoder carries its state;
`torch.nn.Transformer` has no cache, so that each step decodes the whole prefix again. Both search the same batches in
turn. BLEU and the mean score of both are printed: they search alike, up to the rule of when a search may stop.

With `--against joeynmt` the rival is JoeyNMT's Transformer with the same weights (`joeynmt_translator.py`).
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from sacrebleu.metrics import BLEU
from torch import Tensor

import regard
from bench.plain.transformer import PlainTransformer
from bench.plain.translator import PlainTranslator
from regard.data.text.batches import PairBatch
from regard.data.text.sources import open_pairs
from regard.models import RecurrentTranslator, TransformerTranslator

Step = Callable[[Tensor, Tensor], Tensor]
"""(prefixes ``[rows, tokens]``, rows that they continue ``[rows]``) → log-probabilities ``[rows, vocabulary]``."""

Found = list[tuple[float, list[int]]]
"""The best hypothesis of each sentence: its score and its tokens."""

Search = Callable[[PairBatch, Sequence[int]], Found]
"""(batch, its rows in the data) → what was found."""


def transformer_step(plain: PlainTransformer, batch: PairBatch, width: int) -> Step:
    """Steps of a plain Transformer, which decodes the whole prefix each time."""
    padding = torch.arange(batch.source.shape[1]) >= batch.source_lengths[:, None]
    memory = plain.transformer.encoder(
        plain.embedded(plain.source_embedding, batch.source), src_key_padding_mask=padding
    )
    memory, padding = (tensor.repeat_interleave(width, 0) for tensor in (memory, padding))

    def step(prefixes: Tensor, rows: Tensor) -> Tensor:
        length = prefixes.shape[1]
        hidden = plain.transformer.decoder(
            plain.embedded(plain.embedding, prefixes), memory,
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1), memory_key_padding_mask=padding,
        )  # fmt: skip
        return plain.output(hidden[:, -1]).log_softmax(-1)

    return step


def recurrent_step(plain: PlainTranslator, batch: PairBatch, width: int) -> Step:
    """Steps of a plain recurrent decoder with Luong's attention without input feeding, which carries its state."""
    annotations, hidden, cell = plain.encode(batch)
    padding = torch.arange(batch.source.shape[1]) >= batch.source_lengths[:, None]
    annotations, padding, hidden, cell = (
        tensor.repeat_interleave(width, 0) for tensor in (annotations, padding, hidden, cell)
    )
    keys = plain.keys(annotations).transpose(1, 2)
    state = [hidden[None], cell[None]]

    def step(prefixes: Tensor, rows: Tensor) -> Tensor:
        carried = tuple(tensor[:, rows] for tensor in state)
        outputs, state[:] = plain.decoder(plain.embedding(prefixes[:, -1:]), carried)
        scores = (outputs @ keys).masked_fill(padding[:, None], -torch.inf)
        readout = plain.readout(torch.cat([scores.softmax(-1) @ annotations, outputs], dim=-1)).tanh()
        return plain.output(readout[:, 0]).log_softmax(-1)

    return step


def plain_beam(step: Step, lengths: Tensor, width: int, bos: int, eos: int, pad: int) -> Found:
    """The best hypothesis of each sentence: its score and its tokens."""
    batch = len(lengths)
    longest = 2 * int(lengths.max()) + 10
    first = torch.arange(batch)[:, None] * width
    prefixes = torch.full((batch * width, 1), bos)
    totals = torch.full((batch, width), -torch.inf)
    totals[:, 0] = 0
    rows = torch.arange(batch * width)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(batch)]
    for length in range(longest + 1):
        scores = step(prefixes, rows)
        scores[:, [bos, pad]] = -torch.inf
        extended = totals[:, :, None] + scores.view(batch, width, -1)
        best, index = extended.flatten(1).topk(2 * width)
        origin, token = index // scores.shape[1], index % scores.shape[1]
        penalty = (5 + length + 1) / 6
        for sentence, place in (token[:, :width] == eos).nonzero().tolist():
            if len(finished[sentence]) < width and best[sentence, place] > -torch.inf:
                words = prefixes[sentence * width + int(origin[sentence, place]), 1:].tolist()
                finished[sentence].append((float(best[sentence, place]) / penalty, words))
        if all(len(found) >= width for found in finished):
            break
        totals, chosen = best.masked_fill(token == eos, -torch.inf).topk(width)
        rows = (first + origin.gather(1, chosen)).flatten()
        prefixes = torch.cat([prefixes[rows], token.gather(1, chosen).flatten()[:, None]], dim=1)
    return [max(found, default=(0.0, [])) for found in finished]


def make_plain(model: RecurrentTranslator | TransformerTranslator) -> Callable[[PairBatch, int], Step]:
    """The plain model with the weights of ours, as a function that begins a search."""
    if isinstance(model, TransformerTranslator):
        transformer = PlainTransformer.like(model).eval()
        return lambda batch, width: transformer_step(transformer, batch, width)
    if model.config.attention != "luong" or model.config.input_feeding:
        raise SystemExit("the run must be a Transformer, or Luong's attention without input feeding")
    recurrent = PlainTranslator.like(model).eval()
    return lambda batch, width: recurrent_step(recurrent, batch, width)


def plain_search(model: RecurrentTranslator | TransformerTranslator, width: int) -> Search:
    """The search in plain PyTorch."""
    begin, config = make_plain(model), model.config

    def search(batch: PairBatch, rows: Sequence[int]) -> Found:
        return plain_beam(begin(batch, width), batch.source_lengths, width, config.bos, config.eos, config.pad)

    return search


def joeynmt_search(model: RecurrentTranslator | TransformerTranslator, width: int) -> Search:
    """JoeyNMT's search; it gives no scores of the kind that ours are."""
    from bench.scripts.joeynmt_translator import JoeyTranslator

    if not isinstance(model, TransformerTranslator):
        raise SystemExit("for --against joeynmt the run must be a Transformer")
    rival = JoeyTranslator(model.config, 0.0).copy_of(model)
    return lambda batch, rows: [(float("nan"), tokens) for tokens in rival.search(batch, width)]


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    trained = regard.load(arguments.run)
    model = trained.model
    lowercase = trained.config.data.lowercase
    pairs = open_pairs(arguments.data, arguments.source_column, arguments.target_column, lowercase=lowercase)
    pairs = pairs.select(range(min(arguments.sentences, len(pairs))))
    source, target = trained.tokenizers["source"], trained.tokenizers["target"]
    ids = source.encode_batch(pairs["source"])
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    batches = [order[first : first + arguments.batch_size] for first in range(0, len(order), arguments.batch_size)]
    seconds, found = {"regard": [], arguments.against: []}, {"regard": {}, arguments.against: {}}
    theirs = (
        joeynmt_search(model, arguments.beam) if arguments.against == "joeynmt" else plain_search(model, arguments.beam)
    )

    def ours(batch: PairBatch, rows: Sequence[int]) -> Found:
        hypotheses = trained.search([ids[row] for row in rows], arguments.beam, 1.0)
        return [(hypothesis.score, hypothesis.tokens) for hypothesis in hypotheses]

    with torch.inference_mode():
        for number, rows in enumerate(batches):
            batch = PairBatch.of([ids[row] for row in rows])
            sides = {"regard": ours, arguments.against: theirs}
            for side in list(sides)[:: 1 if number % 2 else -1]:
                started = time.perf_counter()
                hypotheses = sides[side](batch, rows)
                seconds[side].append(time.perf_counter() - started)
                found[side] |= dict(zip(rows, hypotheses, strict=True))
    ratios = [theirs / own for own, theirs in zip(*seconds.values(), strict=True)]
    for side, results in found.items():
        texts = [target.decode(results[row][1]) for row in range(len(ids))]
        score = BLEU().corpus_score(texts, [list(pairs["target"])]).score
        mean = statistics.fmean(results[row][0] for row in range(len(ids)))
        rate = len(ids) / sum(seconds[side])
        print(f"{side}: {rate:.1f} sentences/s · BLEU {score:.2f} · mean score {mean:.3f}")
    low, middle, high = statistics.quantiles(ratios, n=4)
    overall = sum(seconds[arguments.against]) / sum(seconds["regard"])
    print(f"ratio {overall:.2f} in all, {middle:.2f} ({low:.2f}–{high:.2f}) a batch")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder of a translator")
    parser.add_argument("data", help="pairs, as for `regard evaluate`")
    parser.add_argument("--source-column")
    parser.add_argument("--target-column")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=1000, help="so many, the first ones")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--against", choices=("plain", "joeynmt"), default="plain", help="the rival")
    return parser.parse_args()


if __name__ == "__main__":
    main()
