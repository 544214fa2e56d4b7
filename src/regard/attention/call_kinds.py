"""Kinds of calls: what decides which of a backend's kernels run, and a small problem of each kind.

A small problem is made to unmask faults of kernels: later keys attract every query and have larger values, so that a
future key that leaks moves the output; lengths are primes above a kernel's tile; the second batch row sees no key under
lengths; widths and layout are those of the call. Elements are drawn on the CPU, from a seed, and rounded to the call's
dtype, so that the specification sees the same ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from regard.attention.kinds import FEW_QUERIES
from regard.attention.problem import Problem, validate
from regard.biases import Bias, TensorBias, alibi
from regard.masks import Band, Mask, Or, causal, keep, lengths, window
from regard.normalizers import Normalizer, as_normalizer, entmax, local_gaussian, softmax_with_sink
from regard.scores import (
    MLP,
    Additive,
    Cosine,
    Decayed,
    DecayedProduct,
    DeltaProduct,
    DeltaRule,
    Features,
    InnerProduct,
    Modified,
    Primitive,
    ScaledDot,
    Score,
    SoftCap,
)
from regard.scores.modifiers import Cap

SIZES = {"product": (131, 197), "few": (3, 1031), "units": (37, 53)}
"""Numbers of queries and keys of a small problem: of inner products, of few queries, of sums of units."""

NOTHING_DROPPED = 2.0**-40
"""A rate of dropout at which kernels draw random numbers and drop nothing: these are multiples of a larger number."""

Draw = Callable[..., Tensor]
"""``(*sizes) ->`` a tensor of normal deviates, on the problem's device, in its dtype."""


class CallKind(NamedTuple):
    """The properties on which a call's kernels depend, in words and numbers.

    Attributes:
        dtype: of the inputs, as ``bfloat16``.
        primitive: class of the score primitive, with its number of decays and the class that it is around.
        modifiers: what else scores pass through: ``scale`` if the scale is a tensor, ``Cap``, ``function``.
        normalizer: the row primitive: its kind, its alpha, and whether there is a sink or a local window; the class of
            a normalizer that has none.
        mask: ``none``, ``causal`` with as many queries as keys, ``causal at the end`` with more keys, ``causal with
            empty rows`` with fewer, ``causal from the start``, ``causal with offsets``, ``window``, or the class of the
            mask.
        bias: ``none``, or the class of the bias; with `` gradient`` if it needs one.
        dim, value_dim: widths of the prepared queries and of the values.
        runs: for a backend that reads the runs of a mask: how many a row has, 0 if the mask is dense; else None.
        dropout: whether weights are dropped, for a backend of which that decides.
        readings: names of the readings that the backend's kernel takes.
    """

    dtype: str
    primitive: str = "InnerProduct"
    modifiers: tuple[str, ...] = ()
    normalizer: str = "softmax"
    mask: str = "none"
    bias: str = "none"
    layout: str = "contiguous"
    dim: int = 64
    value_dim: int = 64
    grouped: bool = False
    few: bool = False
    gradient: bool = False
    runs: int | None = None
    dropout: bool = False
    readings: tuple[str, ...] = ()

    @classmethod
    def of(cls, problem: Problem) -> "CallKind":
        """Returns the kind of a problem, without what only some backends need; no element of a tensor is read."""
        prepared = problem.prepared
        inputs = problem.query, problem.key, problem.value
        scaled = ("scale",) if isinstance(prepared.scale, Tensor) else ()
        return cls(
            dtype=str(problem.query.dtype).removeprefix("torch."),
            primitive=_primitive_name(prepared.primitive),
            modifiers=(*scaled, *("Cap" if isinstance(part, Cap) else "function" for part in prepared.modifiers)),
            normalizer=_normalizer_name(problem),
            mask=_mask_name(problem),
            bias=_bias_name(problem),
            layout="contiguous" if all(tensor.is_contiguous() for tensor in inputs) else "permuted",
            dim=prepared.query.shape[3],
            value_dim=problem.value.shape[3],
            grouped=problem.key.shape[1] != problem.query.shape[1],
            few=problem.query.shape[2] <= FEW_QUERIES,
            gradient=problem.wants_gradient,
        )

    def __str__(self) -> str:
        words = [
            self.dtype,
            *([] if self.primitive == "InnerProduct" else [self.primitive]),
            *self.modifiers,
            *([] if self.normalizer == "softmax" else [self.normalizer]),
            "no mask" if self.mask == "none" else self.mask,
            *([] if self.bias == "none" else [self.bias]),
            *([] if self.layout == "contiguous" else [self.layout]),
            f"{self.dim}/{self.value_dim}",
            *(word for word, holds in (("grouped", self.grouped), ("few queries", self.few)) if holds),
            *(["gradient"] if self.gradient else []),
            *([] if self.runs is None else [f"runs: {self.runs}" if self.runs else "dense mask"]),
            *(["dropout"] if self.dropout else []),
            *self.readings,
        ]
        return " · ".join(words)

    def problem(
        self, device: torch.device | str, dtype: torch.dtype | None = None, length: int | None = None
    ) -> Problem | None:
        """Returns a small problem of this kind, with the same elements on every device.

        It is None if the kind has a score or a normalizer that is not regard's.

        Args:
            device: where the tensors are.
            dtype: of the tensors, whose elements are rounded to the kind's dtype first; None: the kind's dtype.
            length: number of keys, and of queries unless they are few; None: a small one.
        """
        generator, own = torch.Generator().manual_seed(20170612), getattr(torch, self.dtype)

        def normal(*sizes: int) -> Tensor:
            return torch.randn(*sizes, generator=generator, dtype=torch.float64)

        def placed(numbers: Tensor) -> Tensor:
            return numbers.to(own).to(device, dtype or own)

        def draw(*sizes: int) -> Tensor:
            return placed(normal(*sizes))

        queries, keys = self._lengths(length)
        width = self._width()
        heads, kv_heads = (4, 2) if self.grouped else (3, 3)
        score, normalizer = self._score(heads, queries, keys, draw), self._normalizer(heads, queries, keys, draw)
        if score is None or normalizer is None:
            return None
        position = torch.arange(keys, dtype=torch.float64)[:, None] / keys
        query, key = normal(2, queries, heads, width), normal(2, keys, kv_heads, width)
        if self.primitive == "InnerProduct":
            query[..., :1] = 2.0 * self.dim**0.5
            key[..., :1] = 2.0 * position[:, None]
        value = normal(2, keys, kv_heads, self.value_dim) + 3.0 * position[:, None]
        inputs = [placed(tensor).transpose(1, 2) for tensor in (query, key, value)]
        if self.layout == "contiguous":
            inputs = [tensor.contiguous() for tensor in inputs]
        if self.gradient:
            inputs = [tensor.requires_grad_() for tensor in inputs]
        mask = self._mask(queries, keys, torch.rand(2, 1, queries, keys, generator=generator) < 0.7, device)
        bias = self._bias(heads, queries, keys, draw)
        dropout = NOTHING_DROPPED if self.dropout else 0.0
        return validate(*inputs, score=score, normalizer=normalizer, mask=mask, bias=bias, dropout=dropout)

    def _width(self) -> int:
        """Returns the width of the queries, to which decays, documents and positions add columns."""
        decays = int(self.primitive.rpartition(" ")[2]) if "DecayedProduct" in self.primitive else 0
        return self.dim - (2 * decays + 1 if decays else 0) - 2 * self.primitive.startswith("DeltaProduct")

    def _lengths(self, length: int | None) -> tuple[int, int]:
        """Returns the numbers of queries and keys of a problem."""
        queries, keys = SIZES["units" if self.primitive.endswith("Sum") else "few" if self.few else "product"]
        if length is not None:
            queries, keys = queries if self.few else length - length // 4 * ("at the end" in self.mask), length
        if self.mask == "causal with empty rows":
            return (keys, queries) if not self.few else (queries, queries - 1)
        return (queries, queries) if self.mask == "causal" else (queries, keys)

    def _score(self, heads: int, queries: int, keys: int, draw: Draw) -> Score | None:
        scale, rest = self.modifiers[:1] == ("scale",), tuple(name for name in self.modifiers if name != "scale")
        if self.primitive == "InnerProduct" and self.normalizer == "ratio" and not scale:
            score: Score = Features("elu")
        elif self.primitive == "InnerProduct":
            score = ScaledDot(draw(heads, 1, 1).abs() / max(self.dim, 1) ** 0.5) if scale else ScaledDot()
        elif scale:
            return None
        elif self.primitive == "TanhSum":
            score = Additive(draw(self.dim))
        elif self.primitive == "ReluSum":
            # Layers of their own would draw from the caller's generator.
            first, last = (
                skip_init(nn.Linear, *sizes, bias=False) for sizes in ((2 * self.dim, self.dim), (self.dim, 1))
            )
            first.weight = nn.Parameter(draw(self.dim, 2 * self.dim) / self.dim**0.5, requires_grad=False)
            last.weight = nn.Parameter(draw(1, self.dim), requires_grad=False)
            score = MLP(nn.Sequential(first, nn.ReLU(), last))
        elif self.primitive.startswith(("DecayedProduct", "DeltaProduct")):
            score = self._recurrent(heads, queries, keys, draw)
        else:
            return None
        for name in rest:
            score = SoftCap(score, 5.0) if name == "Cap" else Modified(score, _falling)
        return score

    def _recurrent(self, heads: int, queries: int, keys: int, draw: Draw) -> Score:
        """Returns a score whose weights decay, or are those of the delta rule, for keys of unit length."""
        score: Score = Cosine()
        _, _, decays = self.primitive.rpartition("DecayedProduct of ")
        if decays.isdigit():
            sizes = (heads,) if queries > keys else (2, heads, keys, *([int(decays)] if int(decays) > 1 else []))
            score = Decayed(score, -0.1 * draw(*sizes).abs())
        return DeltaRule(score, draw(2, heads, keys).sigmoid()) if self.primitive.startswith("Delta") else score

    def _normalizer(self, heads: int, queries: int, keys: int, draw: Draw) -> Normalizer | None:
        name, *parts = self.normalizer.split(" + ")
        if name.startswith("entmax"):
            normalizer: Normalizer = entmax(1.5 if name == "entmax" else float(name.removeprefix("entmax ")))
        elif name in ("softmax", "sigmoid", "hard", "identity", "ratio"):
            normalizer = softmax_with_sink(draw(heads)) if "sink" in parts else as_normalizer(name)
        else:
            return None
        if "window" in parts:
            return local_gaussian(normalizer, draw(2, heads, queries).abs() * keys / 3.0, keys / 7.0)
        return normalizer

    def _mask(self, queries: int, keys: int, chosen: Tensor, device: torch.device | str) -> Mask | None:
        if self.mask == "none":
            return None
        is_named = self.mask in ("window", "Lengths") or self.mask.startswith("causal")
        if self.runs and not (is_named and self.runs == 1):
            bands = [Band(before=4, after=0, offset=keys - queries - 12 * number) for number in range(self.runs)]
            return bands[0] if self.runs == 1 else Or(*bands)
        if self.runs == 0:
            return _kept_pairs(chosen, device)
        if self.mask == "causal with offsets":
            return causal(offset=[5, keys // 2])
        if self.mask.startswith("causal"):
            return causal(align="start" if self.mask.endswith("start") else "end")
        if self.mask == "window":
            return window(20, 7)
        if self.mask == "Lengths":
            return lengths([keys - 50 if keys > 100 else keys - 5, 0])
        if self.mask in ("And", "Or", "Not"):
            return causal() & lengths([keys, keys - 5])
        return _kept_pairs(chosen, device)

    def _bias(self, heads: int, queries: int, keys: int, draw: Draw) -> Bias | None:
        if self.bias == "none":
            return None
        if self.bias in ("Alibi", "RelativeBias"):
            return alibi(heads)
        return TensorBias(draw(heads, queries, keys).requires_grad_(self.bias.endswith(" gradient")))


def _kept_pairs(chosen: Tensor, device: torch.device | str) -> Mask:
    """Returns a dense mask whose first query of the first batch row sees no key, and whose last one sees the last."""
    chosen[0, :, 0] = False
    chosen[0, :, -1, -1] = True
    return keep(chosen.to(device))


def _primitive_name(primitive: Primitive) -> str:
    if isinstance(primitive, DecayedProduct):
        return f"DecayedProduct of {primitive.gates}"
    if isinstance(primitive, DeltaProduct) and not isinstance(primitive.inner, InnerProduct):
        return f"DeltaProduct of {_primitive_name(primitive.inner)}"
    return type(primitive).__name__


def _falling(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
    """Returns a modification of scores for small problems: it depends on the head and on the distance."""
    return score - 0.01 * (1 + head) * (query_index - key_index).abs()


def _normalizer_name(problem: Problem) -> str:
    row = problem.row
    if row is None:
        return type(problem.normalizer).__name__
    name = row.kind if row.kind != "entmax" or isinstance(row.alpha, Tensor) else f"entmax {row.alpha:g}"
    return name + " + sink" * (row.sink is not None) + " + window" * (row.center is not None)


def _mask_name(problem: Problem) -> str:
    mask = problem.hiding_mask
    if mask is None:
        return "none"
    if not isinstance(mask, Band):
        return type(mask).__name__
    if not mask.is_causal:
        return "window"
    if mask.offset is not None:
        return "causal with offsets"
    offset = problem.grid.offset
    if offset == 0:
        return "causal"
    if mask.align == "start":
        return "causal from the start"
    return "causal at the end" if offset > 0 else "causal with empty rows"


def _bias_name(problem: Problem) -> str:
    bias = problem.bias
    if bias is None:
        return "none"
    return bias.class_name + " gradient" * (torch.is_grad_enabled() and bias.needs_gradient(problem.query))
