"""``regard.patch``: the effect of each head, layer or position on a metric, by activation and path patching."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError
from regard.names.answered import answered
from regard.shapes.checks import check_module, known_name, type_text, whole_number
from regard.watching.change import chosen_numbers, whole_index
from regard.watching.interception import evaluation_mode
from regard.watching.patched import Direction, Method, Over, Patched, PatchedPart, PatchingWarning
from regard.watching.patched_runs import Inputs, Metric, Patching, Receiver, ReceiverPart, measure
from regard.watching.progress_bar import progress_bar


@answered
def patch(
    model: nn.Module,
    clean: Inputs | Sequence[Inputs],
    corrupted: Inputs | Sequence[Inputs],
    metric: Metric,
    *,
    over: Over = "heads",
    what: PatchedPart = "output",
    direction: Direction = "denoising",
    method: Method = "exact",
    check: int = 8,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    kind: Literal["self", "cross"] | None = None,
    receiver: tuple[int, int, ReceiverPart] | Sequence[tuple[int, int, ReceiverPart]] | Literal["output"] | None = None,
    progress: bool = True,
) -> Patched:
    r"""Measures the effect of each head, layer or position on a metric, by patching.

    ::

        patched = regard.patch(model, clean, corrupted, lambda out: out.logits[:, -1, john] - out.logits[:, -1, mary])
        print(patched)                       # layers × heads
        patched.largest(5)
        regard.View(patched)

    The model runs on the corrupted inputs, with one place at a time set to what it was in the run on the clean inputs
    (denoising: which places restore the behaviour); or the reverse (noising: which places break it). The effect is the
    change of the metric; the normalized effect divides its mean over the examples by that of a whole exchange of the
    inputs:

    .. math:: \frac{m_\text{patched} - m_\text{corrupted}}{m_\text{clean} - m_\text{corrupted}}

    It is 1 where the place restores all of the clean run's metric, and 0 where it restores none. Vig et al. 2020,
    "Investigating Gender Bias in Language Models Using Causal Mediation Analysis", call it the indirect effect; Meng et
    al. 2022, "Locating and Editing Factual Associations in GPT"; Heimersheim & Nanda 2024, "How to use and interpret
    activation patching", on the choice of inputs, metric and direction. Effects do not add up: places that stand in for
    one another have small effects each.

    ``method="gradient"`` is attribution patching (Nanda 2023): to first order, the effect of each place is the sum of
    gradient × (clean − corrupted) over its elements, so two forward passes and one backward pass serve all places. It
    is inaccurate where the metric is far from linear, as in saturated softmaxes, and can miss an effect by cancellation
    (Kramár et al. 2024, "AtP*"). So the largest effects are measured exactly too, and their errors are reported; an
    effect that the gradient misses is not among them.

    A ``receiver`` makes it path patching (Wang et al. 2022, "Interpretability in the Wild", section 3.1 and appendix B;
    Goldowsky-Dill et al. 2023, "Localizing Model Behavior with Path Patching"): the table has the effect of each
    sender's output on the metric through the receiver's query, key or values alone, and that only by paths without
    other heads. First the model runs with the sender patched and all other heads as in the unpatched run; what then
    reaches the receiver is patched into a second run. As in Wang et al., norms and MLPs are computed anew in the
    first run, so that a path may lead through MLPs.

    Args:
        model: any model whose attention `regard.watch` sees. It runs in evaluation mode, and its modes are restored.
        clean, corrupted: ids, a mapping of keyword arguments or a tuple of arguments, whose tokens correspond: equally
            many in both. A list has several such batches.
        metric: ``(output of the model)`` → a scalar tensor, or a tensor with one number for each batch row, such as a
            difference of logits. Rows are examples; a scalar counts as one example.
        over: ``"heads"``; ``"layers"``: all heads of a layer at once; ``"positions"``: all heads of a layer at one
            position of the sequence, or each of ``heads``.
        what: what is patched: a head's ``"output"`` before the output projection, its ``"weights"``, ``"values"``,
            ``"query"`` or ``"key"``. Positions are those of keys for values and keys, else of queries.
        direction: ``"denoising"`` or ``"noising"``.
        method: ``"exact"``: a forward pass for each place, with the memory of one layer's patched tensors for weights,
            of all for others; or ``"gradient"``: two passes and a backward one for all places, but for weights for
            each layer, whose ``[batch, heads, queries, keys]`` are the memory that it takes.
        check: the number of largest effects that are measured exactly after ``method="gradient"``.
        layers, heads, kind: the numbers of the layers and of the query heads, from 0, and ``"self"`` (causal or not) or
            ``"cross"``; None: all.
        receiver: ``(layer, head, part)`` of the path's end, whose part is ``"query"``, ``"key"`` or ``"values"``, with
            ``"cross"`` as a fourth entry for cross-attention; or a list of several, which receive together.
            ``"output"``: the model's output, for the direct effect. None: all paths.
        progress: whether to show the progress, on standard error in a terminal.

    Returns:
        the effects. If the user interrupts, those that were measured; the others are NaN.

    Raises:
        KindError, ArgumentError, UnknownNameError: bad arguments; a metric that is no number, or NaN without patching,
            or has no gradient.
        ShapeError: clean and corrupted inputs of different lengths.
        UnseenError: the model's attention cannot be seen.

    Warns:
        PatchingWarning: the gradient disagrees with the exact effects; clean and corrupted inputs have the same metric;
            the user interrupted.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import models
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> clean, corrupted = torch.tensor([[5, 6, 7, 5]]), torch.tensor([[5, 9, 7, 5]])
        >>> patched = regard.patch(model, clean, corrupted, lambda logits: logits[:, -1, 6], progress=False)
        >>> patched
        <Patched output of 2 layers × 2 heads over 1 example>
        >>> patched.normalized.shape, patched.largest(1)[0].layer
        (torch.Size([2, 2]), 0)
    """
    check_module("model", model)
    if not callable(metric):
        raise KindError(f"metric must be a function of the model's output; it is {type_text(metric)}")
    names = (("over", over, Over), ("what", what, PatchedPart), ("direction", direction, Direction))
    for name, value, known in (*names, ("method", method, Method)):
        known_name(name, value, get_args(known))
    if kind is not None:
        known_name("kind", kind, ("self", "cross"))
    check = whole_number("check", check, low=0)
    if receiver is not None and (what != "output" or method != "exact"):
        raise ArgumentError("receiver patches the outputs of senders exactly: leave what and method out")
    sides = [_batches("clean", clean), _batches("corrupted", corrupted)]
    if len(sides[0]) != len(sides[1]):
        raise ArgumentError(
            f"clean and corrupted must have equally many batches; they have {len(sides[0])} and {len(sides[1])}"
        )
    receivers = () if receiver is None else _receivers(receiver)
    of_layers, of_heads = chosen_numbers("layers", layers), chosen_numbers("heads", heads)
    patching = Patching(model, metric, over, what, of_layers, of_heads, kind, receivers)
    pairs = list(zip(*(sides if direction == "noising" else reversed(sides)), strict=True))
    with evaluation_mode(model), torch.no_grad(), progress_bar(progress) as bar:
        measured = measure(patching, pairs, bar, method == "gradient")
        runs = (measured.base, measured.source) if direction == "noising" else (measured.source, measured.base)
        options = (over, what, direction, method, receivers)
        result = Patched(measured.calls, of_heads, *options, *runs, measured.metrics)
        if method == "gradient" and check:
            sizes = result.effect.abs().nan_to_num(-1.0).flatten()
            largest = sizes.argsort(descending=True, stable=True)[:check]
            selected = torch.zeros_like(sizes, dtype=torch.bool).index_fill(0, largest, True)
            exact = measure(patching, pairs, bar, False, selected.view_as(result.effect))
            result = replace(result, exact=exact.metrics)
    for message in result.doubts():
        warnings.warn(message, PatchingWarning, stacklevel=3)
    return result


def _batches(name: str, inputs: Any) -> list[Inputs]:
    """Returns the batches of an argument."""
    batches = inputs if isinstance(inputs, list) else [inputs]
    for batch in batches:
        if not isinstance(batch, (Tensor, Mapping, tuple)):
            raise KindError(
                f"{name} must be a tensor, a mapping of keyword arguments, a tuple of arguments, or a list of such "
                f"batches; it has {type_text(batch)}"
            )
    if not batches:
        raise ArgumentError(f"{name} must have at least one batch; it has none")
    return batches


def _receivers(receiver: Any) -> tuple[Receiver, ...] | Literal["output"]:
    if isinstance(receiver, str) and receiver == "output":
        return receiver
    receivers = []
    for each in receiver if isinstance(receiver, list) else [receiver]:
        if not isinstance(each, tuple) or len(each) not in (3, 4):
            raise KindError(
                'receiver must be (layer, head, part), such as (9, 6, "query"), a list of such, or "output"; it is '
                f"{str(receiver)[:100]!r}"
            )
        layer, head = (whole_index("the receiver's layer and head", number) for number in each[:2])
        known_name("part of receiver", each[2], get_args(ReceiverPart))
        known_name("kind of receiver", each[3] if each[3:] else "self", ("self", "cross"))
        receivers.append(Receiver(layer, head, *each[2:]))
    if not receivers:
        raise ArgumentError("receiver must name at least one head")
    return tuple(receivers)
