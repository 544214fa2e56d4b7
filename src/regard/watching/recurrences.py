"""Linear recurrences of a watched model, read as attention: gated delta rules, and state spaces as Mamba-2 has them.

Each is a causal attention whose scores are its weights (`regard.scores.Decayed`, `regard.scores.DeltaRule`, the
normalizer ``"identity"``). A function that computes one, under any of the names in
`regard.watching.families.RECURRENCES`, runs unchanged; its arguments give queries, keys, values, decays and strengths,
from which any row of the weights follows exactly. If the function begins with a state, the tokens inside of it are
those of the earlier calls (`regard.watching.recurrent_states`). A module's first output is compared with the weighted
values, so that arguments with another meaning give no record.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.problem import validate
from regard.errors import ArgumentError, ShapeError
from regard.masks import causal
from regard.scores import Decayed, DeltaRule, ScaledDot, Score
from regard.shapes.grid import spread_heads, upcast
from regard.watching.call_problems import check_readable
from regard.watching.families import RECURRENCES, RecurrenceForm
from regard.watching.handlers import bound_arguments
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.mask_kind import MaskReading
from regard.watching.owners import Owner
from regard.watching.recurrent_states import RecurrentTokens
from regard.watching.thread_state import STATE, Function, is_idle, run_watched

TOLERANCE = 2e-2
"""The largest difference of an output from the weighted values, in parts of the largest output: kernels round."""


@dataclass(eq=False)
class RecurrentInputs:
    """The inputs of a recurrence and its output, heads first.

    Attributes:
        query: ``[batch, heads, queries, dim]``.
        tokens: those of this call.
        scale: the factor of the products of queries and keys.
        output: ``[batch, heads, queries, value_dim]``, without a skip connection.
        before, after: the state before the first token and after the last one; None: there is none.
    """

    query: Tensor
    tokens: RecurrentTokens
    scale: float
    output: Tensor
    before: Tensor | None
    after: Tensor | None


@dataclass(eq=False)
class RecurrentCall:
    """One call of a function that computes a recurrence.

    Attributes:
        source: the name of the function.
        arguments: the arguments by name; a state that the function overwrites is a copy.
        result: what the function returned.
    """

    source: str
    arguments: dict[str, Any]
    result: Any = None
    intercepted: InterceptedCall | None = field(default=None, init=False)

    @torch.no_grad()
    def read(self, owner: Owner) -> InterceptedCall:
        """Returns the call as a problem; the same one for every observer."""
        if self.intercepted is None:
            self.intercepted = self._read(owner)
        return self.intercepted

    def _read(self, owner: Owner) -> InterceptedCall:
        check_readable(**self.arguments)
        inputs = _INPUTS[RECURRENCES[self.source]](self.arguments, self.result)
        states, tokens, has_state = STATE.recurrences, inputs.tokens, False
        if inputs.before is not None and bool(inputs.before.any()):
            earlier = states.inside(owner.module, inputs.before)
            has_state = earlier is None
            tokens = tokens if earlier is None else tokens.after(earlier)
        query, (key, value, log_decay, beta) = inputs.query, tokens
        score: Score = ScaledDot(inputs.scale)
        if log_decay is not None:
            score = Decayed(score, log_decay)
        if beta is not None:
            score = DeltaRule(score, beta)
        problem = validate(query, key, value, score=score, normalizer="identity", mask=causal())
        is_step = query.shape[2] == 1
        mask = MaskReading.of("none" if is_step else "causal", None if is_step else causal(), causal=True)
        call = InterceptedCall(
            self.source, mask, problem, value=value, scale=inputs.scale, cross=False,
            has_state=has_state, known_output=inputs.output if has_state else None,
        )  # fmt: skip
        if not has_state:
            if states.is_first(owner.module, self.source):
                _verify(call, inputs.output)
            if inputs.after is not None:
                states.add(owner.module, inputs.after, tokens)
        return call

    def change(self, result: Any, change: Callable[[Tensor], Tensor], owner: Owner) -> Any:
        """Returns the result with a changed output of heads, that of a skip connection included."""
        if isinstance(result, tuple):
            return (self.change(result[0], change, owner), *result[1:])
        if RECURRENCES[self.source] == "scan step":
            return change(result[:, :, None])[:, :, 0]
        return change(result.transpose(1, 2)).transpose(1, 2)


def _verify(call: InterceptedCall, output: Tensor) -> None:
    """Raises ArgumentError if the weighted values are not the output of the function."""
    weighted = call.output()
    assert weighted is not None
    largest = output.abs().amax() if output.numel() else output.new_zeros(())
    difference = (weighted - output).abs().amax() if output.numel() else largest
    if not bool(difference <= TOLERANCE * largest):
        raise ArgumentError(
            f"the output of {call.source} is not that of the recurrence which its arguments say: they differ by up to "
            f"{float(difference):.2g}, where the largest number is {float(largest):.2g}"
        )


def _delta_rule(arguments: dict[str, Any], result: Any) -> RecurrentInputs:
    """Reads functions of flash-linear-attention's form: ``[batch, length, heads, dim]``, with a state of each head."""
    short = {"q": "query", "k": "key", "v": "value"}
    named = {short.get(name, name): argument for name, argument in arguments.items()}
    value = _heads_first(named["value"])
    query, key = (_heads_first(named[name]) for name in ("query", "key"))
    if named.get("use_qk_l2norm_in_kernel"):
        query, key = (each * torch.rsqrt(each.square().sum(-1, keepdim=True) + 1e-6) for each in (query, key))
    scale = named.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    query, key = (spread_heads(each, value.shape[1]) for each in (query, key))
    gates = (None if named.get(name) is None else _heads_first(named[name]) for name in ("g", "beta"))
    output, after = result if isinstance(result, tuple) else (result, None)
    return RecurrentInputs(
        query, RecurrentTokens(key, value, *gates), scale, _heads_first(output), named.get("initial_state"), after
    )


def _scan(arguments: dict[str, Any], result: Any) -> RecurrentInputs:
    """Reads the scan of Mamba-2: a state of each head that decays with a step, to which its inputs are added."""
    output, after = result if isinstance(result, tuple) else (result, None)
    x, steps, bias = arguments.get("hidden_states", arguments.get("x")), arguments["dt"], arguments.get("dt_bias")
    assert isinstance(x, Tensor)
    steps = steps if bias is None else steps + bias.to(steps.dtype)
    steps = F.softplus(steps) if arguments.get("dt_softplus") else steps
    steps = steps.clamp(*(arguments.get("dt_limit") or (-torch.inf, torch.inf)))
    inputs = x, steps, arguments["A"], arguments["B"], arguments["C"], arguments.get("D")
    return _of_state_space(*inputs, output, arguments.get("initial_states"), after)


def _scan_step(arguments: dict[str, Any], result: Any) -> RecurrentInputs:
    """Reads one token of Mamba-2's scan, whose arguments repeat what is equal for all features of a head."""
    x, after = arguments.get("hidden_states", arguments.get("x")), arguments["state_after"]
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise ShapeError("its state is of each feature and not of each head, as in Mamba-1")
    named: dict[str, Any] = {name: arguments.get(name) for name in ("dt", "dt_bias", "A", "D")}
    named |= {name: each[..., 0] for name, each in named.items() if each is not None and each.dim() > 1}
    named["A"] = named["A"][..., 0] if named["A"].dim() > 1 else named["A"]
    of_token = {name: each[:, None] for name, each in (("hidden_states", x), ("dt", named["dt"]))}
    of_token |= {name: arguments[name][:, None] for name in ("B", "C")}
    options = {name: arguments.get(name) for name in ("dt_softplus", "dt_limit")}
    inputs = {**named, **of_token, **options, "initial_states": arguments["state"]}
    return _scan(inputs, (result[:, None], after))


def _of_state_space(
    x: Tensor, step: Tensor, rate: Tensor, inward: Tensor, outward: Tensor, skip: Tensor | None,
    output: Tensor, before: Tensor | None, after: Tensor | None,
) -> RecurrentInputs:  # fmt: skip
    """Returns state space duality as attention: queries C, keys Δ·B, values x, log-decays Δ·A."""
    value, steps = _heads_first(x), _heads_first(step)
    keys, query = (spread_heads(_heads_first(each), value.shape[1]) for each in (inward, outward))
    core = _heads_first(output)
    if skip is not None:
        core = core - upcast(skip).reshape(len(skip), 1, -1) * value
    tokens = RecurrentTokens(keys * steps[..., None], value, steps * upcast(rate)[:, None])
    return RecurrentInputs(query, tokens, 1.0, core, before, after)


def _heads_first(tensor: Tensor) -> Tensor:
    """Returns ``[batch, length, heads, ...]`` as ``[batch, heads, length, ...]``, in full precision."""
    return upcast(tensor.detach().transpose(1, 2))


_INPUTS: dict[RecurrenceForm, Callable[[dict[str, Any], Any], RecurrentInputs]] = {
    "delta rule": _delta_rule,
    "scan": _scan,
    "scan step": _scan_step,
}


@cache
def watched_recurrence(original: Function) -> Function:
    """Wraps a function that computes a recurrence, to report its calls."""
    source = original.__name__

    @wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if is_idle():
            return original(*args, **kwargs)
        call = RecurrentCall(source, bound_arguments(original, args, kwargs))
        state = call.arguments.get("state")
        if isinstance(state, Tensor):  # the function overwrites it
            call.arguments |= {"state": state.detach().clone(), "state_after": state}

        def run(*args: Any, **kwargs: Any) -> Any:
            call.result = original(*args, **kwargs)
            return call.result

        return run_watched(run, args, kwargs, call.read, call.change)

    watched.watches_recurrence = True  # type: ignore[attr-defined]
    return watched


def recurrent_names(names: dict[str, Any]) -> list[str]:
    """Returns the names in a module of Python, or of an object, that are bound to a function, not wrapped yet."""
    return [
        name
        for name, value in names.items()
        if type(value) is FunctionType and value.__name__ in RECURRENCES and not hasattr(value, "watches_recurrence")
    ]
