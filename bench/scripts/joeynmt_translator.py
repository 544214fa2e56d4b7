"""JoeyNMT's translators of the same sizes, as rivals in `train_translate.py` and `search_translate.py`.

JoeyNMT 2.3 must be installed in the environment that runs the benchmark (it needs ``setuptools<80`` and
``importlib_metadata``). Its models, losses, batches and search are used as they are, on tokens of our tokenizers. Its
first four tokens are ours in another order.
"""

import logging
from types import SimpleNamespace
from typing import Any

import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from torch import Tensor, nn

from regard.data.text.batches import PairBatch
from regard.models import TransformerTranslator
from regard.models.configs import TranslatorConfig

SPECIALS = SimpleNamespace(
    unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
    unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None,
)  # fmt: skip


class JoeyTranslator(nn.Module):
    """A model of JoeyNMT that takes our batches.

    Args:
        config: sizes, dropout and kind of the model.
        smoothing: label smoothing of its loss.
    """

    def __init__(self, config: TranslatorConfig, smoothing: float):
        super().__init__()
        logging.getLogger("joeynmt").setLevel(logging.WARNING)
        transformer = config.architecture == "transformer"
        sizes = _transformer(config) if transformer else _recurrent(config)
        vocabularies = (_vocabulary(size) for size in (config.source_vocabulary, config.target_vocabulary))
        self.model: Model = build_model({**sizes, "tied_softmax": transformer}, *vocabularies)
        self.model.loss_function = ("crossentropy", smoothing)

    def loss(self, batch: PairBatch) -> Tensor:
        """The training loss: mean over target tokens."""
        given = self._batch(batch, _longest_first(batch))
        total, *_ = self.model(return_type="loss", **vars(given))
        return given.normalize(total, "tokens")

    def search(self, batch: PairBatch, width: int) -> list[list[int]]:
        """The tokens of the best hypothesis of each sentence."""
        order = _longest_first(batch)
        length = 2 * int(batch.source_lengths.max()) + 10
        found, _, _ = search(
            model=self.model, batch=self._batch(batch, order), max_output_length=length, beam_size=width, beam_alpha=1.0
        )
        texts: list[list[int]] = [[] for _ in order]
        for place, row in zip(order.tolist(), found.tolist(), strict=True):
            ended = row[: row.index(SPECIALS.eos_id)] if SPECIALS.eos_id in row else row
            texts[place] = [(token - 1) % 4 if token < 4 else token for token in ended]
        return texts

    @torch.no_grad()
    def copy_of(self, model: TransformerTranslator) -> "JoeyTranslator":
        """This Transformer with the parameters of ours."""
        ours = model.state_dict()
        for name, parameter in self.model.named_parameters():
            if not name.startswith("decoder.output_layer"):
                parameter.copy_(_ours(name, ours))
        bias = ours["output.bias"]
        self.model.decoder.output_layer.bias = nn.Parameter(torch.cat([bias[[3, 0, 1, 2]], bias[4:]]))
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = 1e-5
        return self.eval()

    def _batch(self, batch: PairBatch, order: Tensor) -> Batch:
        source, target = (_their_tokens(ids[order]) for ids in (batch.source, batch.target))
        return Batch(
            src=source, src_length=batch.source_lengths[order], src_prompt_mask=None,
            trg=target if self.training else None, trg_prompt_mask=None, indices=order, device=torch.device("cpu"),
            pad_index=SPECIALS.pad_id, eos_index=SPECIALS.eos_id, is_train=self.training,
        )  # fmt: skip


def _longest_first(batch: PairBatch) -> Tensor:
    """The order in which JoeyNMT wants the sentences of a batch."""
    return batch.source_lengths.argsort(descending=True, stable=True)


def _their_tokens(ids: Tensor) -> Tensor:
    # Ours begin with padding, begin, end, unknown; theirs with unknown, padding, begin, end.
    return torch.where(ids < 4, (ids + 1) % 4, ids)


def _vocabulary(size: int) -> Vocabulary:
    # Built without `add_tokens`, which takes quadratic time.
    vocabulary = Vocabulary([], SPECIALS)
    for number in range(len(vocabulary), size):
        vocabulary._itos.append(f"token{number}")
        vocabulary._stoi[f"token{number}"] = number
    return vocabulary


def _transformer(config: TranslatorConfig) -> dict[str, Any]:
    def side(layers: int) -> dict[str, Any]:
        return {
            "type": "transformer", "num_layers": layers, "num_heads": config.heads, "hidden_size": config.hidden,
            "ff_size": config.feedforward or 4 * config.hidden, "dropout": config.dropout, "layer_norm": config.norm,
            "embeddings": {"embedding_dim": config.hidden, "scale": True, "dropout": config.dropout},
        }  # fmt: skip

    return {"encoder": side(config.encoder_layers), "decoder": side(config.decoder_layers)}


def _recurrent(config: TranslatorConfig) -> dict[str, Any]:
    """An additive score, and the context in the cell's input: JoeyNMT has it as input feeding."""

    def side(hidden: int) -> dict[str, Any]:
        return {
            "type": "recurrent", "rnn_type": "lstm", "num_layers": 1, "hidden_size": hidden, "dropout": config.dropout,
            "embeddings": {"embedding_dim": config.embedding, "scale": False, "dropout": config.dropout},
        }  # fmt: skip

    decoder = {**side(config.hidden), "attention": "bahdanau", "input_feeding": True, "hidden_dropout": config.dropout}
    return {"encoder": side(config.hidden // 2), "decoder": decoder}


PARTS = {
    "src_src_att": "self_attn", "trg_trg_att": "self_attn", "src_trg_att": "multihead_attn", "output_layer": "out_proj",
    "feed_forward.pwff_layer.0": "linear1", "feed_forward.pwff_layer.3": "linear2",
}  # fmt: skip
"""Parts of their layers → ours, for names that are the same on both sides."""


def _ours(name: str, ours: dict[str, Tensor]) -> Tensor:
    """Our parameter for the name of one of theirs."""
    if name.endswith("embed.lut.weight"):
        weight = ours[f"{'source' if name.startswith('src') else 'target'}_input.embedding.weight"]
        return torch.cat([weight[[3, 0, 1, 2]], weight[4:]])
    side, rest = name.split(".", 1)
    if rest.startswith("layer_norm"):
        return ours[f"{side}.norm.{rest.rpartition('.')[2]}"]
    _, layer, part = rest.split(".", 2)
    kind = part.rpartition(".")[2]
    prefix = f"{side}.layers.{layer}."
    norms = {"layer_norm": "norm1", "x_layer_norm": "norm1", "dec_layer_norm": "norm2"}
    last = "norm2" if side == "encoder" else "norm3"
    if part.rpartition(".")[0] in norms:
        return ours[prefix + f"{norms[part.rpartition('.')[0]]}.{kind}"]
    if part.startswith("feed_forward.layer_norm"):
        return ours[prefix + f"{last}.{kind}"]
    for theirs, own in PARTS.items():
        part = part.replace(theirs, own)
    for place, one in enumerate(("q_layer", "k_layer", "v_layer")):
        if f".{one}." in part:
            joined = ours[prefix + part.replace(f"{one}.", "in_proj_").replace(f".{one}", "")]
            return joined.chunk(3)[place]
    return ours[prefix + part]
