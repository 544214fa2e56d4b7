"""A training step of Bahdanau's decoder: all target words, the vocabulary loss and all gradients."""

from typing import Any

import torch
from torch import Tensor, nn

from bench.columns import OWN_COLUMNS
from bench.inner_product import random_tensor
from bench.requirement import Requirement
from bench.task import Implementation, Inputs, Outputs, PreparedCall, Sizes, Task, Work
from regard.attention.verbs import BackendName
from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.chunked_loss import vocabulary_loss
from regard.models.encoders import Encoded
from regard.nn import Attention

SMOOTHING = 0.1

ORACLE_NUMBERS = 1 << 26
"""Largest number of float64 numbers of the oracle's grid of words, keys and units: half a gigabyte."""


def _inputs(sizes: Sizes) -> Inputs:
    B, K, D = sizes["batch"], sizes["keys"], sizes["dim"]
    generator = torch.Generator().manual_seed(21)
    lengths = torch.randint((K + 1) // 2, K + 1, (B,), generator=generator)
    lengths[0] = K
    keep = torch.arange(K) < lengths[:, None]
    return {
        "annotations": random_tensor(B, K, D, seed=22).tanh() * keep[..., None],
        "lengths": lengths,
        # State and cell of the encoder's last step.
        "summary": random_tensor(B, 2 * D, seed=23).tanh(),
        "tokens": torch.randint(sizes["vocabulary"], (B, sizes["words"] + 1), generator=generator),
        "vocabulary": torch.tensor(sizes["vocabulary"]),
        "embedding": torch.tensor(sizes["embedding"]),
    }


def build_decoder(inputs: Inputs, backend: BackendName) -> BahdanauDecoder:
    """The decoder for these inputs; its weights are the same in every call."""
    width, vocabulary, dim = inputs["annotations"].shape[2], int(inputs["vocabulary"]), int(inputs["embedding"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(24)
        attention = Attention.create("additive", width, width, backend=backend)
        embedding, output = nn.Embedding(vocabulary, dim), nn.Linear(dim, vocabulary)
        return BahdanauDecoder(embedding, output, attention, width, 2 * width, width)


def step(decoder: BahdanauDecoder, inputs: Inputs, annotations: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    """The summed loss of all words, and the gradients of the leaves.

    Args:
        decoder: in the inputs' dtype.
        inputs: the inputs of the task.
        annotations: the annotations of the inputs, as a leaf.
        leaves: the tensors whose gradients are computed.
    """
    state = decoder.start(Encoded(annotations, inputs["lengths"], inputs["summary"].to(annotations.dtype)))
    readout = decoder.decode(inputs["tokens"][:, :-1], state).readout
    output = decoder.output
    loss = vocabulary_loss(
        readout.flatten(0, 1), output.weight, output.bias, inputs["tokens"][:, 1:].flatten(), label_smoothing=SMOOTHING
    ).total
    return loss, *torch.autograd.grad(loss, leaves)


def _named(decoder: BahdanauDecoder, raw: tuple[Tensor, ...], count: int) -> Outputs:
    """Loss and gradients by name, divided by the number of words, so that errors of several sizes are comparable."""
    names = ("loss", "gradient of annotations", *(f"gradient of {name}" for name, _ in decoder.named_parameters()))
    return {name: tensor.detach() / count for name, tensor in zip(names, raw, strict=True)}


def _implementation(column: str, named: BackendName, **more: Any) -> Implementation:
    def build(inputs: Inputs) -> PreparedCall:
        decoder = build_decoder(inputs, named).train()
        annotations = inputs["annotations"].clone().requires_grad_()
        leaves = [annotations, *decoder.parameters()]
        count = inputs["tokens"][:, 1:].numel()
        return PreparedCall(lambda: step(decoder, inputs, annotations, leaves), lambda raw: _named(decoder, raw, count))

    return Implementation(column, build, **more)


def _backend(inputs: Inputs) -> str:
    attention = build_decoder(inputs, "auto").attention
    memory = attention.remember(inputs["annotations"], inputs["lengths"])
    width = inputs["annotations"].shape[2]
    return attention.plan(memory.value.new_zeros(len(memory.value), width), memory).backend


def oracle(inputs: Inputs) -> Outputs:
    """The reference in float64, in blocks of sentences, whose losses and gradients are added."""
    decoder = build_decoder(inputs, "reference").double()
    B, K, D = inputs["annotations"].shape
    words = inputs["tokens"].shape[1] - 1
    at_once = max(1, ORACLE_NUMBERS // (K * D * words))
    total = [torch.zeros((), dtype=torch.float64), *(torch.zeros_like(tensor) for tensor in decoder.parameters())]
    grad_annotations: list[Tensor] = []
    with torch.enable_grad():
        for first in range(0, B, at_once):
            rows = slice(first, first + at_once)
            part = {name: inputs[name][rows] for name in ("lengths", "summary", "tokens")}
            annotations = inputs["annotations"][rows].double().requires_grad_()
            loss, grad_annotation_block, *others = step(
                decoder, part, annotations, [annotations, *decoder.parameters()]
            )
            grad_annotations.append(grad_annotation_block)
            total = [before + new for before, new in zip(total, (loss.detach(), *others), strict=True)]
    return _named(decoder, (total[0], torch.cat(grad_annotations), *total[1:]), B * words)


def _reference_bytes(sizes: Sizes) -> float:
    # Plain PyTorch stores the tanh of every pair and unit of every word until the backward pass.
    return 4.0 * 1.5 * sizes["batch"] * sizes["keys"] * sizes["dim"] * sizes["words"]


def _work(sizes: Sizes) -> Work:
    B, K, D, T = (sizes[name] for name in ("batch", "keys", "dim", "words"))
    E, V = sizes["embedding"], sizes["vocabulary"]
    keys = 0.75 * K
    triples = B * keys * D
    # Cell, query projection, readout and vocabulary for each word; the projection of the keys once.
    products = B * T * (4 * D * (E + 2 * D) + D * D + E * (E + 2 * D) + E * V) + triples * D
    return Work(
        multiply_adds=3.0 * products + T * (2 * 3 + 3) * triples,
        reciprocals=1.0 * T * triples,
        exponentials=2.0 * B * T * (keys + D) + triples + B * T * V,
        bytes=4.0 * (T * 4 * triples + 3 * (D * (4 * (E + 2 * D) + 2 * D) + 2 * E * V)),
        said="for each word the additive score forward and backward over the mean of the lengths, and three products "
        "with every matrix of the decoder and the vocabulary",
    )


def _task(keys: int, words: int, requirement: Requirement) -> Task:
    return Task(
        name=f"bahdanau-{keys}",
        title="training step of Bahdanau's decoder, batch {batch}, {words} words, memory {keys}, width {dim}",
        group="Training",
        sizes={"batch": 64, "words": words, "keys": keys, "dim": 512, "embedding": 256, "vocabulary": 8000},
        quick={"batch": 8, "words": 7, "keys": keys, "dim": 64, "embedding": 32, "vocabulary": 211},
        inputs=_inputs,
        implementations=(
            _implementation("regard", "auto", backend=_backend),
            _implementation(
                OWN_COLUMNS["reference"], "reference", note="its attention in plain PyTorch", bytes=_reference_bytes
            ),
        ),
        work=_work,
        oracle=oracle,
        requirements=(requirement,),
        backward=True,
        about="The annotations have unequal lengths. The decoder runs over all words; the vocabulary loss and the "
        "gradients of all parameters and of the annotations are computed. Errors are those of a mean over the words.",
        counted=("target words", lambda sizes: sizes["batch"] * sizes["words"]),
    )  # fmt: skip


TASKS = (
    _task(400, 40, Requirement("faster", 1.6, OWN_COLUMNS["reference"], 2.2)),
    _task(14, 14, Requirement("faster", 1.0, OWN_COLUMNS["reference"])),
)
