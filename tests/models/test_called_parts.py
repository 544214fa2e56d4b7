"""Every registered part of a model is called as a module: a hook sees it, and changes no bit of the loss.

A Transformer whose parts are seen runs padded, so that its loss is the same up to rounding without dropout.
"""

import copy

import pytest
import torch
from torch import nn as torch_nn

from regard import models, nn, scores
from regard.models.chunked_loss import output_loss
from regard.models.speech import sound_classifier, transcriber
from regard.models.vision import segmenter

V, B = 13, 3
SOURCE, TARGET = (torch.arange(B * n).view(B, n) * 7 % (V - 3) + 3 for n in (5, 4))
TARGET[:, 0], TARGET[:, -1] = 1, 2
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([5, 2, 3]), torch.tensor([4, 4, 4])
TEXT = SOURCE, SOURCE_LENGTHS, TARGET, TARGET_LENGTHS
SOUND = torch.arange(B * 12 * 8.0).sin().view(B, 12, 8), torch.tensor([12, 5, 8])
IMAGES, OWNERS = torch.arange(2 * 16 * 16 * 3.0).cos().abs().view(2, 16, 16, 3), torch.tensor([0, 1, 1])
RECURRENT = {"embedding": 6, "hidden": 8}
STACK = {"hidden": 8, "heads": 2, "feedforward": 10}
TRANSFORMER = {"architecture": "transformer", **STACK}
GRID = {"image_height": 16, "image_width": 16, "grid": 8, "stages": 2, "patch": 2}
HEARING = {"width": 8, "hidden": 8, "channels": 2, "convolutions": 1}
HEARD = {"architecture": "transformer", "heads": 2, "feedforward": 10}


def translator(**options):
    return models.RecurrentTranslator(models.TranslatorConfig(V, V, **{**RECURRENT, "dropout": 0.2, **options}))


def text_loss(model):
    return model.loss(*TEXT).total


def label_loss(*inputs):
    return lambda model: model(*inputs).logits.square().sum()


CASES = {
    "bahdanau": (lambda: translator(), text_loss),
    "bahdanau, gru, two layers": (
        lambda: translator(architecture="gru", decoder_layers=2, readout="maxout"), text_loss,
    ),
    "hard": (lambda: translator(attention="hard"), text_loss),
    "luong": (lambda: translator(attention="luong"), text_loss),
    "luong, local": (lambda: translator(attention="luong", scope="local-p", input_feeding=False), text_loss),
    "none": (lambda: translator(attention="none"), text_loss),
    "copies": (
        lambda: models.RecurrentPointerGenerator(models.PointerConfig(V, V, **RECURRENT, tied="target", coverage=True)),
        text_loss,
    ),
    "transformer": (
        lambda: models.TransformerTranslator(
            models.TranslatorConfig(V, V, **TRANSFORMER, encoder_layers=1, decoder_layers=2, position="learned")
        ),
        text_loss,
    ),
    "transformer copies": (
        lambda: models.TransformerPointerGenerator(
            models.PointerConfig(V, V, **TRANSFORMER, tied="target", encoder_layers=1, decoder_layers=1)
        ),
        text_loss,
    ),
    "language": (
        lambda: models.LanguageModel(models.LanguageModelConfig(V, position="learned", **STACK, layers=2, context=8)),
        lambda model: model.loss(SOURCE, label_smoothing=0.1).total,
    ),
    "text classifier": (
        lambda: models.TextClassifier(models.TextClassifierConfig(V, 3, **RECURRENT)),
        label_loss(SOURCE, SOURCE_LENGTHS),
    ),
    "text classifier, transformer": (
        lambda: models.TextClassifier(
            models.TextClassifierConfig(V, 3, hidden=8, heads=2, architecture="transformer", window=1, score="general")
        ),
        label_loss(SOURCE, SOURCE_LENGTHS),
    ),
    "transcriber": (
        lambda: transcriber.RecurrentTranscriber(
            transcriber.TranscriberConfig(
                **HEARING, target_vocabulary=V, embedding=6, decoder_hidden=8, score_features=5, location_channels=2,
                location_width=3, ctc_weight=0.3,
            )
        ),
        lambda model: model.loss(*SOUND, TARGET, TARGET_LENGTHS).total,
    ),
    "transformer transcriber": (
        lambda: transcriber.TransformerTranscriber(
            transcriber.TranscriberConfig(
                **HEARING, **HEARD, target_vocabulary=V, decoder_layers=1, encoder_layers=1, ctc_weight=0.0
            )
        ),
        lambda model: model.loss(*SOUND, TARGET, TARGET_LENGTHS).total,
    ),
    "sounds": (
        lambda: sound_classifier.SoundClassifier(sound_classifier.SoundClassifierConfig(**HEARING, labels=3)),
        label_loss(*SOUND),
    ),
    "vit": (
        lambda: models.ImageClassifier(
            models.ImageClassifierConfig(
                image_height=16, image_width=16, patch=8, labels=3, hidden=8, heads=2, layers=1
            )
        ),
        label_loss(IMAGES),
    ),
    "cnn": (
        lambda: models.ImageClassifier(
            models.ImageClassifierConfig(**GRID, labels=3, architecture="cnn", pooling="attention", gate="cbam")
        ),
        label_loss(IMAGES),
    ),
    "captions": (
        lambda: models.RecurrentCaptioner(models.CaptionerConfig(**GRID, **RECURRENT, target_vocabulary=V)),
        lambda model: model.loss(IMAGES, OWNERS, TARGET, TARGET_LENGTHS).total,
    ),
    "transformer captions": (
        lambda: models.TransformerCaptioner(
            models.CaptionerConfig(**GRID, **TRANSFORMER, layers=1, target_vocabulary=V)
        ),
        lambda model: model.loss(IMAGES, OWNERS, TARGET, TARGET_LENGTHS).total,
    ),
    "segments": (
        lambda: segmenter.Segmenter(
            segmenter.SegmenterConfig(3, channels=4, levels=2, decoder_channels=8, fusion="iaff")
        ),
        lambda model: model(IMAGES.permute(0, 3, 1, 2)).square().sum(),
    ),
}  # fmt: skip

NEVER_CALLED = {
    torch_nn.ModuleList: "a list",
    scores.Score: "lowered to a primitive of a kernel; its own modules are called",
    "normalizer": "lowered likewise",
    "translator": "of a model that copies, which calls its methods",
    "baseline": "a moving average",
}

STACKS = nn.TransformerEncoder, nn.TransformerDecoder


def is_never_called(name, part):
    return isinstance(part, (torch_nn.ModuleList, scores.Score)) or name.split(".")[-1] in NEVER_CALLED


OTHER_HOOKS = ["forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]


@pytest.mark.filterwarnings("ignore:For backward hooks to be called", "ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    ("case", "kind"),
    [(case, "forward_hook") for case in CASES]
    + [(case, kind) for case in ("bahdanau", "bahdanau, gru, two layers", "transformer") for kind in OTHER_HOOKS],
)
def test_a_hook_on_every_part_fires_and_changes_no_bit(case, kind):
    make, loss = CASES[case]
    torch.manual_seed(3)
    model, found, seen = make(), [], set()
    has_stack = any(isinstance(part, STACKS) for part in model.modules())
    for part in model.modules() if has_stack else ():
        name = {torch_nn.Dropout: "p", nn.MultiheadAttention: "dropout"}.get(type(part))
        if name is not None:
            setattr(part, name, 0.0)
    for hooked in (False, True):
        run = copy.deepcopy(model)
        if hooked:
            for name, part in run.named_modules():
                getattr(part, f"register_{kind}")(lambda *_, name=name: seen.add(name))
        torch.manual_seed(4)
        value = loss(run)
        value.backward()
        found.append((value.detach(), [parameter.grad for parameter in run.parameters()]))
    assert torch.equal(found[0][0], found[1][0]) or has_stack
    torch.testing.assert_close(found[0][0], found[1][0])
    for plain, own in zip(*(grads for _, grads in found), strict=True):
        torch.testing.assert_close(own, plain, rtol=1e-4, atol=1e-5)
    missing = {name for name, part in model.named_modules() if name and not is_never_called(name, part)} - seen
    # PyTorch calls no backward hook of a part that gives something else than tensors.
    assert "backward" in kind or not missing
    assert seen


def test_a_backward_hook_changes_no_bit_of_any_of_many_losses():
    features, target = torch.randn(20, 12, 8, requires_grad=True), torch.randint(V, (20, 12))
    plain, hooked = torch_nn.Linear(8, V), torch_nn.Linear(8, V)
    hooked.load_state_dict(plain.state_dict())
    hooked.register_full_backward_hook(lambda *_: None)
    for rows, labels in zip(features, target, strict=True):
        assert torch.equal(output_loss(rows, hooked, labels).total, output_loss(rows, plain, labels).total)
