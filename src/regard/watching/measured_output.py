"""One number of a model's output for each text of a batch, and the passes of the model that its attribution needs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError, UnseenError
from regard.shapes.checks import check_integers, type_text, whole_number
from regard.watching.attention_call import AttentionCall
from regard.watching.change import Change
from regard.watching.corpus import check_vocabulary, run_model
from regard.watching.intervention import intervene
from regard.watching.linear_maps import wide_tensor
from regard.watching.watch import watch

Metric = Callable[[Any], Tensor] | int | Sequence[int] | Tensor | None
"""A function of the model's output; or a label, or one for each text; None: the label that the model predicts."""


MeasuredForward = Callable[..., Any]
"""``(model, ids)`` or ``(model, ids, mask)``: calls the model, and returns its output."""


class WeighedCall(NamedTuple):
    """An attention call whose keys are the tokens.

    Attributes:
        call: its record.
        weights: ``[batch, heads, queries, keys]``.
        gradient: the derivative of the number with respect to each weight.
        share: ``[batch, queries]``, the share of each query in the rows that are read; they sum to 1.
    """

    call: AttentionCall
    weights: Tensor
    gradient: Tensor
    share: Tensor

    @property
    def is_square(self) -> bool:
        """Whether queries and keys are the same positions."""
        return self.call.kind != "cross" and self.call.queries == self.call.keys

    def row(self, of_pairs: Tensor) -> Tensor:
        """Returns the mean over heads and over the queries that are read, ``[batch, keys]``."""
        return torch.einsum("bq,bhqk->bk", self.share, of_pairs) / of_pairs.shape[1]


class Embedded(NamedTuple):
    """The module that embeds the tokens, and its output ``[batch, leading + tokens, features]``."""

    module: nn.Module
    output: Tensor


@dataclass(eq=False)
class MeasuredOutput:
    """One number of the output for each text; the arguments are those of `regard.watching.importance`.

    Attributes:
        counted: ``[batch, tokens]``, the tokens that are left out one by one; None: all.
    """

    model: nn.Module
    ids: Tensor
    metric: Metric = None
    mask: Tensor | None = None
    query: int | None = None
    layers: int | Sequence[int] | None = None
    heads: int | Sequence[int] | None = None
    removal: int | str = "delete"
    forward: MeasuredForward | None = None
    steps: int = 32
    batch: int = 32
    counted: Tensor | None = None

    def __post_init__(self) -> None:
        check_integers("ids", self.ids)
        if self.ids.dim() != 2 or not self.ids.numel():
            raise ShapeError(f"ids must be [batch, tokens], with at least one; the shape is {list(self.ids.shape)}")
        if self.mask is not None and (self.mask.shape != self.ids.shape or not bool(self.mask.any(1).all())):
            raise ShapeError(
                f"mask must have the shape of ids, {list(self.ids.shape)}, and a token in each row; "
                f"its shape is {list(self.mask.shape)}"
            )
        if self.removal not in ("delete", "hide"):
            if not isinstance(self.removal, int) or isinstance(self.removal, bool) or self.removal < 0:
                raise ArgumentError(f'removal must be "delete", "hide" or a token id; it is {self.removal!r}')
            check_vocabulary(torch.tensor([self.removal]), self.model)
        if self.query is not None:
            whole_number("query", self.query)
        check_vocabulary(self.ids, self.model)
        self.mask = None if self.mask is None else self.mask.bool()
        self.present = torch.ones_like(self.ids, dtype=torch.bool) if self.mask is None else self.mask
        self._labels = self._chosen_labels()

    def _chosen_labels(self) -> Tensor | None:
        if callable(self.metric):
            return None
        if self.metric is None:
            with torch.no_grad():
                return _logits(self._run(self.ids, self.mask), self.mask).argmax(-1)
        is_number = isinstance(self.metric, (int, Sequence, Tensor)) and not isinstance(self.metric, str)
        labels = torch.as_tensor(self.metric).cpu() if is_number else torch.tensor(-1)
        if labels.is_floating_point() or labels.dtype == torch.bool or bool((labels < 0).any()):
            raise KindError("metric must be a function, or labels, whole numbers from 0")
        if labels.dim() > 1 or (labels.dim() and len(labels) != len(self.ids)):
            raise ShapeError(f"metric must be one label, or one for each of {len(self.ids)} texts")
        return labels.expand(len(self.ids))

    def numbers(self, ids: Tensor, rows: Tensor, mask: Tensor | None = None) -> Tensor:
        """Returns the number of each of some texts, those of the batch's ``rows`` or what is left of them."""
        output = self._run(ids, mask)
        if callable(self.metric):
            numbers = self.metric(output)
        else:
            assert self._labels is not None
            logits, labels = _logits(output, mask), self._labels[rows.cpu()]
            if int(labels.max()) >= logits.shape[-1]:
                raise ArgumentError(f"metric must be a label below {logits.shape[-1]}; it is {int(labels.max())}")
            numbers = logits.softmax(-1).gather(1, labels[:, None])[:, 0]
        if not isinstance(numbers, Tensor) or not numbers.is_floating_point() or numbers.shape != (len(ids),):
            shown = list(numbers.shape) if isinstance(numbers, Tensor) else type_text(numbers)
            raise ShapeError(f"metric must return a real number for each text, [{len(ids)}]; it returned {shown}")
        if not bool(numbers.isfinite().all()):
            raise ArgumentError("metric must be finite; it is NaN or infinite")
        return numbers

    def _run(self, ids: Tensor, mask: Tensor | None) -> Any:
        if self.mask is None and self.removal != "hide":
            return (self.forward or run_model)(self.model, ids)
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return (self.forward or run_model)(self.model, ids, mask)

    @property
    def rows(self) -> Tensor:
        """The numbers of the batch's rows."""
        return torch.arange(len(self.ids), device=self.ids.device)

    @cached_property
    def whole(self) -> Tensor:
        """The number of each whole text, ``[batch]``."""
        with torch.no_grad():
            return self.numbers(self.ids, self.rows, self.mask).cpu()

    @torch.no_grad()
    def partial(self, row: int, remaining: Tensor) -> Tensor:
        """Returns the numbers ``[variants]`` of one text with some tokens alone, bool ``[variants, tokens]``."""
        ids = self.ids[row, self.present[row]]
        remaining = remaining[:, self.present[row].cpu()].to(ids.device)
        counts = (
            remaining.sum(1) if self.removal == "delete" else torch.full((len(remaining),), len(ids), device=ids.device)
        )
        numbers = torch.empty(len(remaining), dtype=torch.float64)
        for count in counts.unique().tolist():
            if not count:
                raise ArgumentError(
                    f"removal must leave a token, and text {row} has one: give the id of a mask token, or leave it out"
                )
            for some in (counts == count).nonzero()[:, 0].split(self.batch):
                left, mask = ids.expand(len(some), -1), None
                if self.removal == "delete":
                    left = left[remaining[some]].view(len(some), count)
                elif self.removal == "hide":
                    mask = remaining[some]
                else:
                    left = left.masked_fill(~remaining[some], int(self.removal))
                rows = torch.full((len(some),), row, device=ids.device)
                numbers[some.cpu()] = self.numbers(left, rows, mask).double().cpu()
        return numbers

    @cached_property
    def embedded(self) -> Embedded:
        """The innermost module that gives vectors to exactly these ids, and its output."""
        outputs: list[Embedded] = []

        def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            read, width = args[0] if args else None, self.ids.shape[1]
            if outputs or not (isinstance(read, Tensor) and isinstance(output, Tensor) and read.dim() == 2):
                return
            if torch.equal(read[:, -width:], self.ids) and output.dim() == 3 and output.shape[:2] == read.shape:
                outputs.append(Embedded(module, output.detach()))

        with torch.no_grad(), _hooked(self.model.modules(), note):
            self._run(self.ids, self.mask)
        if not outputs:
            raise UnseenError("no module of the model embeds ids [batch, tokens], so its input has no gradient")
        return outputs[0]

    def at_embedding(self, embeddings: Tensor, rows: Tensor) -> Tensor:
        """Returns the numbers of some rows with other embeddings, ``[rows, leading + tokens, features]``."""
        module, waiting = self.embedded.module, [embeddings]

        def replace(module: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor | None:
            return waiting.pop() if waiting and output.shape == embeddings.shape else None

        with _hooked([module], replace):
            numbers = self.numbers(self.ids[rows], rows, None if self.mask is None else self.mask[rows])
        if waiting:
            raise UnseenError(f"the {type(module).__name__} that embeds the ids does not so in every run of the model")
        return numbers

    @cached_property
    def leading(self) -> int:
        """The number of tokens that the model itself puts before the ids, such as a class token."""
        try:
            return self.embedded.output.shape[1] - self.ids.shape[1]
        except UnseenError:
            return 0

    @cached_property
    def calls(self) -> list[WeighedCall]:
        """The calls whose keys are the tokens, in the order of the layers' calls, with weights and their gradients."""
        recorded: list[Tensor] = []

        def record(weights: Tensor) -> Tensor:
            recorded.append(weights if weights.requires_grad else weights.detach().requires_grad_())
            return recorded[-1]

        change = Change("weights", record, layer=self.layers, head=self.heads)
        # The recurrent layers of cuDNN have no derivative in evaluation mode.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            with intervene(self.model, change), watch(self.model, layers=self.layers, heads=self.heads) as seen:
                numbers = self.numbers(self.ids, self.rows, self.mask)
            gradients = torch.autograd.grad(numbers.sum(), recorded, allow_unused=True)
        if [(call.queries, call.keys) for call in seen.calls] != [tuple(each.shape[2:]) for each in recorded]:
            raise UnseenError("the attention calls that were seen are not those whose weights can be changed")
        calls = []
        for call, weights, gradient in zip(seen.calls, recorded, gradients, strict=True):
            if call.keys == self.ids.shape[1] + self.leading and call.mechanism != "depth":
                gradient = torch.zeros_like(weights) if gradient is None else gradient
                weights, gradient = (wide_tensor(one.detach()) for one in (weights, gradient))
                calls.append(WeighedCall(call, weights, gradient, self._share(call, gradient)))
        if not calls:
            shapes = ", ".join(f"{call.name!r} {call.queries} × {call.keys}" for call in seen.calls)
            raise UnseenError(f"no attention call has the {self.ids.shape[1]} tokens as keys: {shapes}")
        layers = [each.call.layer for each in calls if each.is_square]
        if len({*layers}) < len(layers):
            raise UnseenError(
                "the model's attention is no stack of layers with one map of weights each: an encoder with a decoder, "
                "or differential attention; choose a method that uses no weights, such as gradient_input"
            )
        return calls

    def _share(self, call: AttentionCall, gradient: Tensor) -> Tensor:
        if self.query is not None:
            if not -call.queries <= self.query < call.queries:
                raise ArgumentError(f"query must be below {call.queries}, the queries of {call.name!r}")
            read = torch.zeros(gradient.shape[0], call.queries, dtype=torch.bool, device=gradient.device)
            read[:, self.query] = True
        else:
            read = gradient.ne(0).any(-1).any(1)
        return read.to(gradient.dtype) / read.sum(1, keepdim=True).clamp(min=1)


@contextmanager
def _hooked(modules: Any, hook: Any) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _logits(output: Any, mask: Tensor | None) -> Tensor:
    """Returns the logits in an output in float64, ``[batch, labels]``; of each token: those of the last one."""
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if isinstance(logits, tuple):
        logits = logits[0]
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise KindError(
            f"metric must be given as a function of the output, in which there are no logits: it is {type_text(output)}"
        )
    if logits.dim() == 3 and mask is not None:
        last = mask.shape[1] - 1 - mask.int().flip(1).argmax(1)
        return logits[torch.arange(len(logits), device=logits.device), last.to(logits.device)].cpu().double()
    return (logits if logits.dim() == 2 else logits[:, -1]).cpu().double()
