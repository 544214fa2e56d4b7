"""Importance of input tokens for one number of a model's output: attention weights, and measures that use more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.readings import Readings
from regard.errors import MissingPartError
from regard.names.answered import answered
from regard.records import AttentionRecord, TokenAxis
from regard.shapes.checks import check_module, known_name, whole_number
from regard.watching.attention_call import AttentionCall
from regard.watching.interception import evaluation_mode
from regard.watching.layer_graph import flow, rollout
from regard.watching.measured_output import MeasuredForward, MeasuredOutput, Metric
from regard.watching.watch import watch


@dataclass(frozen=True)
class ImportanceMethod:
    """A method that gives each token its importance for one number of the output.

    Attributes:
        title: its name in tables.
        compute: the numbers of a batch → ``[batch, leading + tokens]``.
        signed: whether tokens that lower the number are below 0.
        source: the papers.

    Example:
        >>> from regard import watching
        >>> [name for name, method in watching.IMPORTANCE_METHODS.items() if not method.signed]
        ['weights', 'norms', 'rollout', 'flow', 'relevance']
    """

    title: str
    compute: Callable[[MeasuredOutput], Tensor]
    signed: bool
    source: str


def _weights(measured: MeasuredOutput) -> Tensor:
    return torch.stack([each.row(each.weights) for each in measured.calls]).mean(0)


def _norms(measured: MeasuredOutput) -> Tensor:
    read, layers, heads = Readings(weights=True), measured.layers, measured.heads
    with torch.no_grad(), watch(measured.model, read=read, norms=True, layers=layers, heads=heads) as seen:
        measured.numbers(measured.ids, measured.rows, measured.mask)
    norms = [seen.calls[each.call.number].weighted_norms().to(each.weights) for each in measured.calls]
    return torch.stack([each.row(norm) for each, norm in zip(measured.calls, norms, strict=True)]).mean(0)


def _gradient(measured: MeasuredOutput) -> Tensor:
    return torch.stack([(each.weights * each.gradient).sum(2).mean(1) for each in measured.calls]).mean(0)


def _relevance(measured: MeasuredOutput) -> Tensor:
    *lower, top = measured.calls
    raising = [(each.weights * each.gradient).clamp(min=0).mean(1) for each in measured.calls]
    own = top.share if top.is_square else torch.zeros_like(raising[-1][:, 0])
    share = torch.einsum("bq,bqk->bk", top.share, raising[-1]) + own
    for each, matrix in reversed([*zip(lower, raising[:-1], strict=True)]):
        if each.is_square:
            share = share + torch.einsum("bq,bqk->bk", share, matrix)
    return share - own


def _through_layers(combine: Callable[..., AttentionRecord]) -> Callable[[MeasuredOutput], Tensor]:
    """Returns a method that follows the rows that are read at the top down through the layers."""

    def compute(measured: MeasuredOutput) -> Tensor:
        top = measured.calls[-1]
        start = top.share if top.is_square else top.row(top.weights)
        layers = [each for each in measured.calls if each.is_square]
        if not layers:
            return start
        axis, rows = TokenAxis(tuple(map(str, range(start.shape[1])))), []
        for row, shares in enumerate(start):
            records = [_record(each.call, each.weights[row], axis) for each in layers]
            chosen = shares.nonzero()[:, 0]
            reached = combine(records, queries=chosen.tolist()).weights
            assert reached is not None
            rows.append(shares[chosen] @ torch.from_numpy(reached[0]).to(shares))
        return torch.stack(rows)

    return compute


def _record(call: AttentionCall, weights: Tensor, axis: TokenAxis) -> AttentionRecord:
    return AttentionRecord(call.name, call.layer, call.kind, axis, axis, weights.cpu().numpy().astype(np.float32))


def _gradient_input(measured: MeasuredOutput) -> Tensor:
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        embeddings = measured.embedded.output.clone().requires_grad_()
        numbers = measured.at_embedding(embeddings, measured.rows)
        (gradient,) = torch.autograd.grad(numbers.sum(), embeddings)
    return (embeddings.detach() * gradient).sum(-1)


def _integrated_gradients(measured: MeasuredOutput) -> Tensor:
    with MissingPartError.instead("captum", "attribution"):
        from captum.attr import IntegratedGradients
    embeddings = measured.embedded.output
    with torch.backends.cudnn.flags(enabled=False):
        products = IntegratedGradients(measured.at_embedding).attribute(
            embeddings,
            baselines=torch.zeros_like(embeddings),
            additional_forward_args=(measured.rows,),
            n_steps=measured.steps,
            internal_batch_size=max(measured.batch, len(embeddings)),
        )
    return products.sum(-1)


def _leave_one_out(measured: MeasuredOutput) -> Tensor:
    importance = torch.zeros(measured.ids.shape, dtype=torch.float64)
    counted = measured.present if measured.counted is None else measured.counted
    for row in range(len(importance)):
        for positions in counted[row].cpu().nonzero()[:, 0].split(measured.batch):
            remaining = torch.ones(len(positions), measured.ids.shape[1], dtype=torch.bool)
            remaining[torch.arange(len(positions)), positions] = False
            importance[row, positions] = measured.whole[row] - measured.partial(row, remaining)
    return importance


IMPORTANCE_METHODS: dict[str, ImportanceMethod] = {
    "weights": ImportanceMethod(
        "attention weights", _weights, False, "Bahdanau et al. 2015; doubted by Jain & Wallace 2019"
    ),
    "norms": ImportanceMethod("norms ‖α v W_O‖", _norms, False, "Kobayashi et al. 2020"),
    "rollout": ImportanceMethod("attention rollout", _through_layers(rollout), False, "Abnar & Zuidema 2020"),
    "flow": ImportanceMethod("attention flow", _through_layers(flow), False, "Abnar & Zuidema 2020"),
    "gradient_weight": ImportanceMethod(
        "gradient × weight", _gradient, True, "Serrano & Smith 2019; Barkan et al. 2021"
    ),
    "relevance": ImportanceMethod("attention relevance", _relevance, False, "Chefer et al. 2021"),
    "gradient_input": ImportanceMethod("gradient × input", _gradient_input, True, "Denil et al. 2014"),
    "integrated_gradients": ImportanceMethod(
        "integrated gradients", _integrated_gradients, True, "Sundararajan et al. 2017"
    ),
    "leave_one_out": ImportanceMethod("leave-one-out", _leave_one_out, True, "Li et al. 2016"),
}
"""The methods of `importance` by their names; a new one is one more entry."""


@answered
def importance(
    model: nn.Module,
    ids: Tensor,
    metric: Metric = None,
    method: str = "gradient_weight",
    *,
    mask: Tensor | None = None,
    query: int | None = None,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    removal: int | str = "delete",
    forward: MeasuredForward | None = None,
    steps: int = 32,
    batch: int = 32,
) -> Tensor:
    r"""Computes how important each token of the input is for one number of a model's output, by one of many methods.

    ========================  =======================================================================================
    method                    importance of token j
    ========================  =======================================================================================
    ``weights``               :math:`\overline{w_{ij}}`, the mean over layers, heads and the queries that are read
    ``norms``                 the same mean of :math:`\lVert w_{ij} v_j W_O \rVert` (Kobayashi et al. 2020)
    ``rollout``, ``flow``     `rollout` and `flow` from the queries that are read at the top (Abnar & Zuidema 2020)
    ``gradient_weight``       :math:`\sum_i w_{ij} \, \partial y / \partial w_{ij}`, the mean over layers and heads
                              (Serrano & Smith 2019; Barkan et al. 2021, "Grad-SAM", who drop negative gradients)
    ``relevance``             row i of :math:`\prod_l (I + \bar A_l) - I`, :math:`\bar A` being the mean over heads
                              of :math:`(\partial y / \partial w \odot w)^+` (Chefer et al. 2021, "Generic
                              Attention-model Explainability", equations 5 and 6)
    ``gradient_input``        :math:`e_j \cdot \partial y / \partial e_j`, :math:`e_j` being the embedding
    ``integrated_gradients``  :math:`e_j \cdot \int_0^1 \partial y / \partial e_j (\alpha e) \, d\alpha` (Sundararajan
                              et al. 2017, equation 1), which add up to :math:`y(e) - y(0)`; by Captum
    ``leave_one_out``         :math:`y - y_{\setminus j}`: what is lost without the token (Li et al. 2016)
    ========================  =======================================================================================

    Weights, norms, rollout, flow and relevance are never negative; the others have the sign of the token's effect. How
    far they agree on your own model is measured by `faithfulness`. Methods of attention keep the weights of all layers.
    The model needs no eager attention: gradients with respect to weights come from `regard.intervene`.

    Args:
        model: any model whose attention `regard.watch` sees; it runs in evaluation mode, and its modes are restored.
        ids: token ids, integers ``[batch, tokens]``.
        metric: the number :math:`y`: a function of the model's output that returns ``[batch]``, each row by itself; or
            a label, or one for each row: its probability (of the last token's logits, where each token has some).
            None: the label that the model predicts.
        method: one of `IMPORTANCE_METHODS`.
        mask: bool ``[batch, tokens]``, False for padding, which has importance 0. It is given to the model.
        query: the position whose row is read in every layer; None: in each layer those on whose weights the number
            depends, such as that of the class token in the highest layer, or of the last token.
        layers, heads: the numbers of those that are read, from 0; None: all.
        removal: how ``leave_one_out`` leaves a token out. ``"delete"``: the text becomes shorter; ``"hide"``: the mask
            hides it; a token id: it stands there instead.
        forward: ``(model, ids)``, or ``(model, ids, mask)`` with a mask or ``"hide"``, which returns the output of the
            model, where ``model(ids)`` would be wrong.
        steps: the points of the integral, of a Gauss-Legendre quadrature.
        batch: the number of shortened texts, or of points of the integral, that run at once.

    Returns:
        ``[batch, tokens]`` on the CPU.

    Raises:
        KindError, ArgumentError, ShapeError, UnknownNameError: bad arguments; a metric that is not finite.
        UnseenError: no attention over these tokens is seen, or no module that embeds them.
        MissingPartError: Captum is not installed (``regard[attribution]``).

    Example:
        >>> import torch
        >>> from regard import models, watching
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> ids = torch.tensor([[5, 6, 7, 8, 9]])
        >>> round(watching.importance(model, ids, metric=6, method="weights").sum().item(), 4)
        1.0
        >>> watching.importance(model, ids, metric=6).shape
        torch.Size([1, 5])
    """
    check_module("model", model)
    known_name("method", method, IMPORTANCE_METHODS)
    whole_number("steps", steps, low=1)
    whole_number("batch", batch, low=1)
    with evaluation_mode(model):
        measured = MeasuredOutput(model, ids, metric, mask, query, layers, heads, removal, forward, steps, batch)
        return token_importance(measured, method)


def token_importance(measured: MeasuredOutput, method: str) -> Tensor:
    """Returns the importance of each token, without the tokens that the model itself puts before them."""
    numbers = IMPORTANCE_METHODS[method].compute(measured).detach()
    return numbers[:, -measured.ids.shape[1] :].cpu().masked_fill(~measured.present.cpu(), 0.0)
