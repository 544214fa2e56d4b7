"""Classifiers that read the label off a class token: what they refuse, padding, and the attention of the token."""

from types import SimpleNamespace

import pytest
import torch

from regard.data.labels import Labels
from regard.data.text.tokenizers import Tokenizer
from regard.errors import ArgumentError
from regard.models import TextClassifier, TextClassifierConfig
from regard.tasks import registry
from regard.tasks.classify import TrainedClassifier

TEXTS = ["a good film", "bad", "", "so so and long, too long"]


def classifier(vocabulary, **options):
    sizes = {"hidden": 8, "heads": 2, "layers": 2, "feedforward": 9, "max_length": 12, "embedding_norm": True}
    config = {"architecture": "transformer", "pooling": "cls", "position": "learned", "norm": "post", **sizes}
    return TextClassifier(TextClassifierConfig(vocabulary, 3, **{**config, **options})).eval()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "cls"}, "pooling 'cls' has no meaning with architecture 'lstm', only with 'transformer'"),
        ({"pooling": "cls", "architecture": "transformer", "window": 3}, "leave window out"),
        ({"embedding_norm": True}, "embedding_norm has no meaning with architecture 'lstm'"),
    ],
)
def test_models_without_a_class_token_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        TextClassifierConfig(9, 3, **options)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "alibi"])
@torch.no_grad()
def test_padding_changes_no_label_and_every_token_counts(position):
    torch.manual_seed(1)
    model = classifier(20, position=position)
    tokens, lengths = torch.randint(20, (4, 12)), torch.tensor([12, 5, 1, 0])
    logits = model(tokens, lengths).logits
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], lengths[row : row + 1]).logits
        torch.testing.assert_close(alone, logits[row : row + 1], rtol=1e-4, atol=1e-5)
    for changed in range(12):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % 20
        assert not torch.equal(model(other, lengths).logits[0], logits[0])


def test_the_attention_of_the_class_token_is_shown():
    torch.manual_seed(1)
    tokenizer = Tokenizer.train(TEXTS * 3, "bpe", 40)
    trained = object.__new__(TrainedClassifier)
    trained.task, trained.device = registry.find("classify"), "cpu"
    trained.files = {"tokenizer": tokenizer, "labels": Labels(["bad", "good", "so so"])}
    trained.model = classifier(len(tokenizer))
    trained.config = SimpleNamespace(data=SimpleNamespace(max_length=12))
    for prediction in trained.predict_with(TEXTS[:2], SimpleNamespace(batch_size=4)):
        attentions = trained.attentions(prediction)
        records = [one.record() for one in attentions]
        assert [one.name for one in records] == [f"encoder.layers.{layer}.self_attn" for layer in range(2)]
        axis = records[0].queries
        assert axis.tokens[0] == "<cls>"
        assert list(axis.tokens[1:]) == tokenizer.tokens(tokenizer.encode(prediction.source), prediction.source)
        assert axis.special == (True,) + (False,) * (len(axis) - 1)
        assert axis.words[0] == range(1)
