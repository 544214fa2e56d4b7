"""A run of the Transformer is a run like any other: trained, interrupted, resumed, evaluated, used."""

import pytest
import torch

import regard
from regard.errors import ArgumentError
from regard.tasks.translate import TASK, TranslationTrainingConfig, TranslatorConfig
from regard.training.reporter import SilentReporter
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

MODEL = {
    "architecture": "transformer", "hidden": 12, "heads": 2, "feedforward": 16, "encoder_layers": 2,
    "decoder_layers": 2,
}  # fmt: skip


@pytest.fixture(scope="module", params=["sinusoidal", "learned"])
def run(tiny, tmp_path_factory, request):
    """A run that nothing interrupted, and its configuration."""
    config = tiny(model={**MODEL, "position": request.param}, scheduled_sampling=0.0, checkpoint_steps=4)
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / request.param)
    train_run(TASK, config, folder, reporter=SilentReporter())
    return folder, config


def test_a_transformer_run_predicts_evaluates_and_shows_its_weights(run, corpus):
    trained = regard.load(run[0].path)
    text = "The dog sleeps."
    (one,) = trained.predict([text], beam=1)
    assert one.weights.shape == (len(one.target_tokens), len(one.source_tokens))
    torch.testing.assert_close(one.weights.sum(-1), torch.ones(len(one.target_tokens)))
    for beam in (1, 3):  # an untrained model does not end its sentences: each has a limit of its own
        together = trained.predict([text, "They see a house and a tree.", ""], beam=beam)
        assert together[0].text == trained.predict([text], beam=beam)[0].text
        assert len(together[0].target_tokens) <= 2 * len(together[0].source_tokens) + 10
    assert together[2].text == ""
    links = trained.alignments([text], ["El perro duerme."])
    assert links[0]
    assert trained.evaluate(str(corpus["validation"]), beam=2).alignment_error_rate is not None
    sampled = trained.evaluate(str(corpus["validation"]), samples=3, temperature=0.5, seed=2)
    assert sampled.to_dict()["risk"] == {"samples": 3, "temperature": 0.5, "order": 4, "seed": 2}


def test_a_text_beyond_learned_positions_is_refused_in_one_line(run):
    trained = regard.load(run[0].path)
    text = "dog " * 400
    if trained.config.model.position == "learned":
        with pytest.raises(ArgumentError, match=r"a text has 400 tokens, and .* has learned positions for 210"):
            trained.predict([text])
    else:
        assert trained.predict([text], beam=1)[0].source_tokens


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "luong"}, "attention has no meaning with architecture 'transformer'"),
        ({"heads": 5}, "heads must divide hidden, 12; it is 5"),
        ({"kv_heads": 4}, "kv_heads must divide heads, 2; it is 4"),
        ({"embedding": 7}, "embedding has no meaning with architecture 'transformer'"),
        ({"hidden": 6, "position": "rotary"}, "even number of features a head"),
        ({"score": "location"}, "score 'location' is that of a recurrent decoder"),
        ({"feedforward_chunk": -1}, "feedforward_chunk must be"),
        (
            {"architecture": "lstm", "heads": 8, "feedforward": 0, "activation_checkpointing": True},
            "activation_checkpointing has no meaning with architecture 'lstm'",
        ),
        (
            {"architecture": "lstm", "heads": 8, "feedforward": 0, "norm": "post"},
            "norm has no meaning with architecture 'lstm'",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(options, message):
    with pytest.raises(ArgumentError, match=message):
        TranslatorConfig(**{**MODEL, **options})


def test_a_transformer_run_refuses_scheduled_sampling(tiny, tmp_path):
    with pytest.raises(ArgumentError, match="scheduled_sampling must be 0 with architecture 'transformer'"):
        train_run(TASK, tiny(model=MODEL), RunFolder.create(tmp_path / "run"), reporter=SilentReporter())
    assert TranslationTrainingConfig().scheduled_sampling == 0
