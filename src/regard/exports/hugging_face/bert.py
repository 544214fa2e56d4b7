"""Classifiers of texts as BERT: a class token, embeddings that are normalized, and post-norm layers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.labels import Labels
from regard.exports.formats import UnexportableError
from regard.exports.hugging_face.folder import Folder, fill, loaded_model, transformers_package, write
from regard.exports.hugging_face.layers import (
    OTHER_FORMATS,
    activation_name,
    check_layers,
    inputs_of,
    linear,
    no_final_norm,
)
from regard.exports.hugging_face.tokenizer import save_tokenizer
from regard.exports.torch_programs import difference
from regard.models.text_classifier import TextClassifier
from regard.models.token_input import TokenInput
from regard.nn import TransformerEncoder
from regard.positions import Learned, Sinusoidal

BERT_OPTIONS = {
    "architecture": "transformer", "norm": "post", "position": "learned", "pooling": "cls", "embedding_norm": True,
}  # fmt: skip
"""Options of a training whose classifier BERT computes."""


def check_text_classifier(model: TextClassifier) -> None:
    """Raises UnexportableError unless the class computes this model."""
    encoder, embedded = model.encoder, model.input
    if not isinstance(encoder, TransformerEncoder) or not isinstance(embedded, TokenInput):
        name = model.config.architecture
        raise UnexportableError(
            f"no class of transformers computes a text classifier with architecture {name!r}",
            BERT_OPTIONS,
            OTHER_FORMATS,
        )
    position = embedded.position
    check_layers(
        encoder.layers,
        pre=False,
        more=[
            (model.pooler is not None, "it has no class token", {"pooling": "cls"}),
            (embedded.norm is not None, "its embeddings are not normalized", {"embedding_norm": True}),
            (position is not None, "its positions are neither learned nor sinusoidal", {"position": "learned"}),
            no_final_norm(encoder),
        ],
    )


def export_text_classifier(model: TextClassifier, files: Mapping[str, Any], path: Path) -> Folder:
    """Writes a Transformer that classifies texts, with the class token that its tokenizer puts before each text."""
    config, encoder, embedded = model.config, model.encoder, model.input
    assert isinstance(encoder, TransformerEncoder)
    assert isinstance(embedded, TokenInput)
    layers: list[Any] = list(encoder.layers)
    transformers = transformers_package()
    labels = next((one.names for one in files.values() if isinstance(one, Labels)), ())
    first, dim, tokenizer = layers[0], config.hidden, files["tokenizer"]
    dropout = first.dropout.p
    exported = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=config.vocabulary + 1, hidden_size=dim, num_hidden_layers=len(layers),
            num_attention_heads=first.self_attn.num_heads, intermediate_size=first.linear1.out_features,
            hidden_act=activation_name(first), hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
            max_position_embeddings=config.max_length + 1, type_vocab_size=1, layer_norm_eps=first.norm1.eps,
            pad_token_id=tokenizer.PAD, problem_type="single_label_classification",
            id2label=dict(enumerate(labels)), label2id={name: number for number, name in enumerate(labels)},
        )
    )  # fmt: skip
    write(fill(exported, _tensors(model, embedded, layers)), path)
    save_tokenizer(tokenizer, path, class_token=True, longest=config.max_length + 1)
    loaded = loaded_model(transformers.AutoModelForSequenceClassification, path)
    gaps = [_gap(model, loaded, *size) for size in ((3, min(7, config.max_length)), (1, 1))]
    note = f"the model reads {config.max_length} tokens of a text: cut longer ones with truncation=True"
    return Folder(type(exported).__name__, "AutoModelForSequenceClassification", max(gaps), note)


def _gap(model: TextClassifier, loaded: Any, batch: int, length: int) -> float:
    """Returns the largest difference of logits for random texts, some padded, behind their class token."""
    tokens = torch.randint(model.config.vocabulary, (batch, length), generator=torch.Generator().manual_seed(length))
    lengths = (length - torch.arange(batch)).clamp(min=1)
    ids = torch.cat((torch.full((batch, 1), model.config.vocabulary), tokens), 1)
    mask = (torch.arange(length + 1) <= lengths[:, None]).long()
    with torch.no_grad():
        theirs = loaded(input_ids=ids, attention_mask=mask).logits
        return difference([theirs], [model(tokens, lengths).logits], type(loaded).__name__)


def _tensors(model: TextClassifier, embedded: TokenInput, layers: list[Any]) -> dict[str, Tensor]:
    """Returns the weights under the names of BERT."""
    dim, positions = model.config.hidden, model.config.max_length + 1
    position = embedded.position
    assert isinstance(position, (Learned, Sinusoidal))
    tensors = {
        "bert.embeddings.word_embeddings.weight": embedded.embedding.weight * embedded.scale,
        "bert.embeddings.position_embeddings.weight": (
            position.weight if isinstance(position, Learned) else position.table(positions)
        ),
        "bert.embeddings.token_type_embeddings.weight": torch.zeros(1, dim),
        **linear("bert.embeddings.LayerNorm", embedded.norm),
        **linear("bert.pooler.dense", model.pooler),
        **linear("classifier", model.output),
    }
    for number, layer in enumerate(layers):
        name = f"bert.encoder.layer.{number}"
        projections = inputs_of(layer.self_attn)
        for letter, part in (("q", "query"), ("k", "key"), ("v", "value")):
            tensors |= linear(f"{name}.attention.self.{part}", projections[letter])
        tensors |= linear(f"{name}.attention.output.dense", layer.self_attn.out_proj)
        tensors |= linear(f"{name}.attention.output.LayerNorm", layer.norm1)
        tensors |= linear(f"{name}.intermediate.dense", layer.linear1)
        tensors |= linear(f"{name}.output.dense", layer.linear2)
        tensors |= linear(f"{name}.output.LayerNorm", layer.norm2)
    return tensors
