"""Training steps of whole models against the same models in plain PyTorch: loss and gradients of all parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.plain.classifier import PlainClassifier
from bench.plain.transformer import PlainTransformer
from bench.plain.translator import SMOOTHING, PlainTranslator
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes, Task, Work
from regard.attention.execution import LISTENERS
from regard.data.text.batches import PairBatch
from regard.models import (
    RecurrentTranslator,
    TextClassifier,
    TextClassifierConfig,
    TransformerTranslator,
    TranslatorConfig,
)

LABELS = 2
HEADS = 4
LAYERS = 3
"""Of the encoder and of the decoder of the Transformer."""


@dataclass(frozen=True)
class WholeModel:
    """A model, the same in plain PyTorch, and what a step of both computes.

    Attributes:
        title: the model's name.
        create: sizes → our model.
        plain: our model → the one of plain PyTorch, with a copy of the parameters.
        loss: our model, inputs → the training loss of a batch.
        plain_loss: likewise.
        embeddings: name of the inputs' embedding → its parameter in ours and in the plain model, whose gradients are
            compared; all gradients are computed.
        multiply_adds: sizes → those of a forward pass.
    """

    title: str
    create: Callable[[Sizes], nn.Module]
    plain: Callable[[Any], nn.Module]
    loss: Callable[[Any, Inputs], Tensor]
    plain_loss: Callable[[Any, Inputs], Tensor]
    embeddings: dict[str, tuple[str, str]]
    multiply_adds: Callable[[Sizes], float]


def _inputs(sizes: Sizes) -> Inputs:
    B, T, V = sizes["batch"], sizes["words"], sizes["vocabulary"]
    generator = torch.Generator().manual_seed(31)

    def lengths() -> Tensor:
        found = torch.randint(T - T // 4, T + 1, (B,), generator=generator)
        found[0] = T
        return found

    return {
        "source": torch.randint(3, V, (B, T), generator=generator),
        "source lengths": lengths(),
        "target": torch.randint(3, V, (B, T), generator=generator),
        "target lengths": lengths(),
        "labels": torch.randint(LABELS, (B,), generator=generator),
        **{name: torch.tensor(size) for name, size in sizes.items()},
    }


def _recurrent(attention: str) -> Callable[[Sizes], nn.Module]:
    def create(sizes: Sizes) -> nn.Module:
        V = sizes["vocabulary"]
        return RecurrentTranslator(
            TranslatorConfig(V, V, embedding=sizes["embedding"], hidden=sizes["dim"], attention=attention, dropout=0.0)
        )

    return create


def _transformer(sizes: Sizes) -> nn.Module:
    V, D = sizes["vocabulary"], sizes["dim"]
    return TransformerTranslator(
        TranslatorConfig(
            V,
            V,
            architecture="transformer",
            hidden=D,
            heads=HEADS,
            encoder_layers=LAYERS,
            decoder_layers=LAYERS,
            dropout=0.0,
        )
    )


def _classifier(sizes: Sizes) -> nn.Module:
    return TextClassifier(
        TextClassifierConfig(
            sizes["vocabulary"],
            LABELS,
            embedding=sizes["embedding"],
            hidden=sizes["dim"],
            dropout=0.0,
            word_dropout=0.0,
        )
    )


def _translation_loss(model: Any, inputs: Inputs) -> Tensor:
    given = (inputs[name] for name in ("source", "source lengths", "target", "target lengths"))
    return model.loss(*given, label_smoothing=SMOOTHING).total


def _plain_translation_loss(model: Any, inputs: Inputs) -> Tensor:
    return model.loss(
        PairBatch(
            source=inputs["source"],
            source_lengths=inputs["source lengths"],
            target=inputs["target"],
            target_lengths=inputs["target lengths"],
            index=torch.arange(len(inputs["source"])),
        )
    )


def _classifier_loss(model: Any, inputs: Inputs) -> Tensor:
    return F.cross_entropy(model(inputs["source"], inputs["source lengths"]).logits, inputs["labels"])


def _plain_classifier_loss(model: Any, inputs: Inputs) -> Tensor:
    return model.loss(inputs["source"], inputs["source lengths"], inputs["labels"])


def _encoder_products(sizes: Sizes) -> float:
    """Of a token in a bidirectional LSTM."""
    E, D = sizes["embedding"], sizes["dim"]
    return 4.0 * D * (E + D / 2)


def _recurrent_products(sizes: Sizes) -> float:
    E, D, V, T = (sizes[name] for name in ("embedding", "dim", "vocabulary", "words"))
    decoder = 4 * D * (E + 2 * D) + 2 * D * D + E * (E + 2 * D) + E * V + 2 * D * T
    return sizes["batch"] * T * 0.875 * (_encoder_products(sizes) + decoder)


def _transformer_products(sizes: Sizes) -> float:
    D, V, T = sizes["dim"], sizes["vocabulary"], sizes["words"]
    encoder, decoder = 12 * D * D + 2 * T * D, 16 * D * D + 4 * T * D
    return sizes["batch"] * T * 0.875 * (LAYERS * (encoder + decoder) + D * V)


def _classifier_products(sizes: Sizes) -> float:
    D = sizes["dim"]
    return sizes["batch"] * sizes["words"] * 0.875 * (_encoder_products(sizes) + D * D + 2 * D)


_EMBEDDINGS = {
    "source embedding": ("encoder.embedding.weight", "source_embedding.weight"),
    "target embedding": ("decoder.embedding.weight", "embedding.weight"),
}

_RECURRENT: dict[str, Any] = {
    "plain": PlainTranslator.like,
    "loss": _translation_loss,
    "plain_loss": _plain_translation_loss,
    "embeddings": _EMBEDDINGS,
    "multiply_adds": _recurrent_products,
}

MODELS = {
    "bahdanau": WholeModel("Bahdanau's translator", _recurrent("bahdanau"), **_RECURRENT),
    "luong": WholeModel("Luong's translator", _recurrent("luong"), **_RECURRENT),
    "transformer": WholeModel(
        f"Transformer of {LAYERS} + {LAYERS} layers",
        _transformer,
        PlainTransformer.like,
        _translation_loss,
        _plain_translation_loss,
        {
            "source embedding": ("source_input.embedding.weight", "source_embedding.weight"),
            "target embedding": ("target_input.embedding.weight", "embedding.weight"),
        },
        _transformer_products,
    ),
    "classifier": WholeModel(
        "text classifier with an LSTM and attention pooling",
        _classifier,
        PlainClassifier.like,
        _classifier_loss,
        _plain_classifier_loss,
        {"embedding": ("encoder.embedding.weight", "embedding.weight")},
        _classifier_products,
    ),
}


def _created(model: WholeModel, inputs: Inputs) -> nn.Module:
    sizes = {name: int(inputs[name]) for name in ("batch", "words", "dim", "embedding", "vocabulary")}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(32)
        return model.create(sizes).train()


def _prepared(
    module: nn.Module, loss: Callable[[Any, Inputs], Tensor], names: dict[str, str], inputs: Inputs, half: bool
) -> PreparedCall:
    parameters = dict(module.named_parameters())

    def call() -> tuple[Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            total = loss(module, inputs)
        return total, *torch.autograd.grad(total, list(parameters.values()))

    def read(raw: tuple[Tensor, ...]) -> Outputs:
        gradients = dict(zip(parameters, raw[1:], strict=True))
        found = {f"gradient of {name}": gradients[parameter] for name, parameter in names.items()}
        return {"loss": raw[0].detach(), **found}

    return PreparedCall(call, read)


def _regard(model: WholeModel, half: bool) -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        names = {name: ours for name, (ours, _) in model.embeddings.items()}
        return _prepared(_created(model, inputs), model.loss, names, inputs, half)

    def backend(inputs: Inputs) -> str:
        """The backends that a step runs on."""
        used: dict[str, None] = {}

        def listen(execute: Any, problem: Any, named: str, gatherer: Any, need_weights: bool, layer: Any) -> Any:
            used[named] = None
            return execute(problem, named, gatherer, need_weights)

        prepared = build(inputs)
        LISTENERS.append(listen)
        try:
            with torch.enable_grad():
                prepared.call()
        finally:
            LISTENERS.remove(listen)
        return " and ".join(used)

    return Implementation("regard", build, backend=backend)


def _plain(model: WholeModel, half: bool, compiled: bool = False) -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        names = {name: plain for name, (_, plain) in model.embeddings.items()}
        loss = model.plain_loss
        if compiled:
            torch._dynamo.reset()
            # Recurrent layers with packed sequences run outside of the compiled graphs.
            loss = torch.compile(loss, dynamic=False)
        return _prepared(model.plain(_created(model, inputs)).train(), loss, names, inputs, half)

    note = "the same model, of modules and functions of PyTorch alone"
    if compiled:
        return Implementation("compile", build, note=f"{note}; the loss is compiled", memory_measured=False)
    return Implementation("eager", build, note=note)


def _oracle(model: WholeModel) -> Callable[[Inputs], Outputs]:
    def oracle(inputs: Inputs) -> Outputs:
        names = {name: plain for name, (_, plain) in model.embeddings.items()}
        module = model.plain(_created(model, inputs)).double().train()
        with torch.enable_grad():
            prepared = _prepared(module, model.plain_loss, names, inputs, half=False)
            return prepared.read(prepared.call())

    return oracle


def _work(model: WholeModel, sizes: Sizes) -> Work:
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in model.create(sizes).parameters())
    return Work(
        multiply_adds=3 * model.multiply_adds(sizes),
        bytes=12.0 * parameters,
        said="three products with every matrix, over the mean of the lengths; every parameter is read twice, its "
        "gradient written once",
    )


LIMITED_BY = """\
The layers of these models are PyTorch's own, and so are their matrix products, which take most of a step on both sides:
what can be faster is attention, the loss on a vocabulary, which stores no logits, and padding, which is not computed.
Attention of short sequences takes rows where a projection wrote them, and leaves gradients there, on processors where
the microkernel multiplies ([products](derivations/products.md)). Kernels of layers, of recurrent cells, of dropout and
of the loss made a step up to 1.5 times as fast as plain PyTorch; they were taken out again, because they are not
attention."""

LIMITED_BY_IN_BFLOAT16 = """\
As in float32. Where the processor has no instructions for bfloat16, PyTorch's products of it are slower than those of
float32, on both sides."""


def _task(name: str, model: WholeModel, half: bool) -> Task:
    return Task(
        name=f"model-{name}{'-bf16' if half else ''}",
        title=f"training step, {model.title}{', bfloat16' if half else ''}, "
        "batch {batch}, {words} words, width {dim}",
        group="Whole models",
        sizes={
            "batch": 64, "words": 16, "dim": 256 if name == "transformer" else 512, "embedding": 256,
            "vocabulary": 8000,
        },
        quick={"batch": 8, "words": 8, "dim": 64, "embedding": 32, "vocabulary": 211},
        inputs=_inputs,
        implementations=(
            _regard(model, half),
            _plain(model, half),
            # Loops over the words of a recurrent decoder took minutes to compile.
            *(() if name in ("bahdanau", "luong") else (_plain(model, half, compiled=True),)),
        ),
        work=partial(_work, model),
        oracle=_oracle(model),
        requirements=(Requirement("faster", 1.0, "eager"),),
        limited_by=LIMITED_BY_IN_BFLOAT16 if half else LIMITED_BY,
        backward=True,
        about="Loss and gradients of all parameters, without dropout and without the optimizer; the errors are those "
        "of the loss and of the embeddings' gradients. Lengths are uniform from three quarters of the words to all."
        + (" Both run under autocast." if half else ""),
        counted=("tokens", lambda sizes: sizes["batch"] * sizes["words"] * 0.875),
    )  # fmt: skip


TASKS = tuple(_task(name, model, half) for name, model in MODELS.items() for half in (False, True))
