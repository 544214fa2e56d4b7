"""The context: what it refuses, what it says, and that everything is as it was after it."""

import gc
import os
import re
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from in_threads import in_threads
from regard.attention.execution import LISTENERS
from regard.errors import ArgumentError, KindError, ShapeError, UnseenError
from regard.watching import UnseenAttentionWarning
from watching.models import HAND_WRITTEN, WEIGHTS, Heads, captured

SDPA, HAS = F.scaled_dot_product_attention, torch.overrides.has_torch_function


@pytest.fixture(autouse=True)
def _everything_is_restored():
    yield
    assert F.scaled_dot_product_attention is SDPA
    assert torch.overrides.has_torch_function is HAS
    assert not LISTENERS
    assert torch._C._len_torch_function_stack() == 0
    assert not nn.modules.module._global_forward_pre_hooks
    assert not nn.modules.module._global_forward_hooks


def stack(layers=2):
    return nn.Sequential(*(Heads(HAND_WRITTEN["sdpa"][0]) for _ in range(layers)))


def test_an_exception_leaves_through_the_context():
    model = stack()

    def fail(module, args):
        raise KeyboardInterrupt

    model[1].register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt), regard.watch(model) as seen:
        model(torch.randn(1, 3, 10))
    assert len(seen.calls) == 1


def test_an_error_of_the_call_itself_is_the_models():
    class Wrong(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x[..., :2], x)

    model = Wrong()
    with pytest.raises(RuntimeError) as plain:
        model(torch.randn(1, 1, 3, 4))
    with pytest.raises(RuntimeError) as watched, regard.watch(model):
        model(torch.randn(1, 1, 3, 4))
    assert str(plain.value) == str(watched.value)


def test_nested_contexts_see_their_own_models():
    model, x = stack(3), torch.randn(1, 3, 10)
    with regard.watch(model) as outer:
        with regard.watch(model[1]) as inner:
            model(x)
        model[0](x)
    assert [call.name for call in outer.calls] == ["0", "1", "2", "0"]
    assert [call.name for call in inner.calls] == [""]


def test_contexts_that_end_in_another_order():
    first, second = stack(), stack()
    x = torch.randn(1, 3, 10)
    one, two = regard.watch(first), regard.watch(second)
    one.__enter__()
    two.__enter__()
    first(x)
    one.__exit__(None, None, None)
    second(x)
    two.__exit__(None, None, None)
    assert len(one.calls) == len(two.calls) == 2


def test_other_models_and_bare_calls_are_not_recorded():
    model, other, x = stack(1), stack(1), torch.randn(1, 3, 10)
    with regard.watch(model) as seen:
        other(x)
        F.scaled_dot_product_attention(x, x, x)
        model(x)
        regard.attend(x, x, x)
    assert [call.name for call in seen.calls] == ["0"]


def test_methods_are_seen_as_forward_is():
    model, x = stack(1), torch.randn(1, 3, 10)
    with regard.watch(model) as seen:
        model[0].forward(x)
    assert [call.name for call in seen.calls] == ["0"]


def test_threads_see_their_own_calls():
    models, x = [stack(2), stack(3)], torch.randn(2, 5, 10)
    seen = [None, None]
    barrier = threading.Barrier(2)

    def work(place):
        # A new thread of PyTorch makes its first products with another number of threads, and other last bits.
        for _ in range(3):
            expected = models[place](x)
        with regard.watch(models[place]) as found:
            barrier.wait()
            for _ in range(3):
                assert torch.equal(models[place](x), expected)
            barrier.wait()
        seen[place] = [call.name for call in found.calls]

    in_threads(2, work)
    assert seen == [["0", "1"] * 3, ["0", "1", "2"] * 3]


def test_a_model_that_ran_in_another_thread_only_is_told():
    model, x = stack(), torch.randn(1, 3, 10)

    def run():
        thread = threading.Thread(target=model, args=(x,))
        thread.start()
        thread.join()

    with pytest.raises(UnseenError, match="no module of Sequential was called"), regard.watch(model):
        run()


def test_the_same_context_again():
    model, x = stack(1), torch.randn(1, 3, 10)
    seen = regard.watch(model)
    with seen:
        with pytest.raises(ArgumentError, match="open already"), seen:
            pass
        model(x)
    with seen:
        model(x)
    assert [call.number for call in seen.calls] == [0, 1]


class StrangeAttention(nn.Module):
    """Attention that no softmax and no known function computes."""

    def forward(self, x):
        weights = (x @ x.transpose(-1, -2)).relu()
        return (weights / (weights.sum(-1, keepdim=True) + 1)) @ x


def test_attention_that_cannot_be_seen_is_named():
    x = torch.randn(1, 3, 10)
    with (
        pytest.raises(UnseenError, match=r"'1' \(StrangeAttention\)"),
        regard.watch(model := nn.Sequential(nn.Linear(10, 10), StrangeAttention())),
    ):
        model(x)
    mixed = nn.Sequential(Heads(HAND_WRITTEN["sdpa"][0]), StrangeAttention())
    with pytest.warns(UnseenAttentionWarning, match=r"'1' \(StrangeAttention\)"), regard.watch(mixed) as seen:
        mixed(x)
    assert len(seen.calls) == 1
    with pytest.raises(UnseenError, match="Linear ran"), regard.watch(linear := nn.Linear(10, 10)):
        linear(x)
    with pytest.raises(UnseenError, match="no module of Linear was called"), regard.watch(linear):
        pass


def test_softmax_that_is_no_attention_gives_no_record():
    class Router(nn.Module):
        def forward(self, x):
            gates = (x @ x.transpose(-1, -2)).softmax(-1)
            return gates.sum() + (x.softmax(-1)[..., None, :] @ x[..., None]).sum() + x @ x.transpose(-1, -2)

    with pytest.raises(UnseenError), regard.watch(model := Router()):
        model(torch.randn(1, 3, 10))


def test_compiled_models_are_refused_by_name():
    model = nn.Sequential(nn.Linear(3, 3), stack())
    compiled = nn.Sequential(torch.compile(model[1], backend="eager"))
    with pytest.raises(KindError, match=r"module '0' is compiled by torch\.compile"), regard.watch(compiled):
        pass
    model[0].compile(backend="eager")
    with pytest.raises(KindError, match=r"module '0' is compiled \(Linear"), regard.watch(model):
        pass


def test_a_part_that_is_compiled_as_a_function_is_told():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = torch.compile(lambda x: F.scaled_dot_product_attention(x, x, x), backend="aot_eager")

        def forward(self, x):
            return self.attend(x)

    model, x = Attention(), torch.randn(1, 1, 3, 4)
    expected = model(x)
    with pytest.raises(UnseenError, match="Attention"), regard.watch(model):
        assert torch.equal(model(x), expected)
    assert torch.equal(model(x), expected)


COMPILED_FIRST = """
import regard, sys, torch
from torch import nn
from torch.nn import functional as F

class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)

def compiled(function):
    return torch.compile(function, backend=backend, fullgraph=True)

def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

graphs, model, x = [], Attention(), torch.randn(1, 2, 5, 6)
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 1).eval()
context = regard.watch(model) if sys.argv[1] == "watch" else regard.intervene(model, regard.Change("output", 0.0))
with context:
    model(x)
    torch.compile(lambda x: model(x), backend=backend)(x)
    if sys.argv[1] == "watch":
        torch.testing.assert_close(compiled(lambda x: encoder(x))(x[0]), encoder(x[0]))
graphs.clear()
for function, inputs in ((encoder, x[0]), (model, x)):
    torch.testing.assert_close(compiled(lambda x: function(x))(inputs), function(inputs))
assert len(graphs) == 2
"""


@pytest.mark.parametrize("context", ["watch", "intervene"])
def test_compilers_keep_nothing_of_a_context_they_first_ran_in(context):
    """A compiler fills its tables of functions once in a process, and leaves code uncompiled that it refused."""
    environment = os.environ | {"PYTHONPATH": str(Path(regard.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", COMPILED_FIRST, context], env=environment, check=True)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "ended"])
def test_a_context_is_left_in_the_thread_that_opened_it(is_running):
    model, x, opened, left = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(1, 3, 10), threading.Event(), threading.Event()
    context = regard.watch(model)

    def open_context():
        context.__enter__()
        model(x)
        opened.set()
        if is_running:
            left.wait()
            model(x)
            context.__exit__(None, None, None)

    thread = threading.Thread(target=open_context, name="first")
    thread.start()
    opened.wait()
    if is_running:
        with pytest.raises(ArgumentError, match="thread 'first' opened this context"):
            context.__exit__(None, None, None)
        left.set()
        thread.join()
    else:
        thread.join()
        context.__exit__(None, None, None)
    assert len(context.calls) == 1 + is_running
    assert torch.overrides.has_torch_function is HAS
    assert not LISTENERS


def test_nothing_is_kept_that_was_not_asked_for():
    references = []

    def attend(query, key, value):
        references.extend(weakref.ref(tensor) for tensor in (query, key, value))
        return F.scaled_dot_product_attention(query, key, value)

    model = Heads(attend)
    with torch.no_grad(), regard.watch(model) as seen:
        output = model(torch.randn(2, 7, 10))
        references.append(weakref.ref(output))
        del output
        gc.collect()
        assert [reference() for reference in references] == [None] * 4
    (call,) = seen.calls
    assert call.weights is None
    assert call.visible_mask is None
    assert call.head_output is None


def test_layers_and_heads_are_chosen():
    model, x = stack(3), torch.randn(2, 5, 10)
    with regard.watch(model, read=WEIGHTS) as everything:
        model(x)
    with regard.watch(model, read=WEIGHTS, layers=[2, 0], heads=1) as some:
        model(x)
    assert [call.layer for call in some.calls] == [0, 2]
    for call in some.calls:
        assert call.chosen_heads == (1,)
        assert torch.equal(call.weights, everything.calls[call.layer].weights[:, 1:])
    with (
        pytest.raises(ArgumentError, match=r"layers \[7\] made no attention call; those that did are \[0, 1, 2\]"),
        regard.watch(model, layers=7),
    ):
        model(x)
    with pytest.raises(ArgumentError, match="heads must be below 2"), regard.watch(model, heads=[2]):
        model(x)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"read": "entropy"}, KindError, "read must be a Readings"),
        ({"read": regard.Readings(top_k=-1)}, ArgumentError, "top_k"),
        ({"layers": [-1]}, ArgumentError, r"layers\[0\]"),
        ({"layers": []}, ArgumentError, "layers"),
        ({"heads": "0"}, KindError, r"heads must be an integer"),
        ({"keep": 1}, KindError, "keep must be"),
        ({"norms": "yes"}, KindError, "norms must be"),
    ],
)
def test_watch_refuses_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        regard.watch(stack(), **arguments)
    with pytest.raises(KindError, match="model must be"):
        regard.watch(torch.nn.functional.relu)


def test_readings_that_a_call_does_not_have():
    model = stack(1)
    with pytest.raises(ArgumentError, match="rows"), regard.watch(model, read=regard.Readings(rows=[5])):
        model(torch.randn(1, 5, 10))


def test_watch_reads_empty_and_single_axes():
    model = stack(1)
    with regard.watch(model, read=WEIGHTS) as seen:
        model(torch.randn(0, 3, 10))
        model(torch.randn(2, 1, 10))
        model(torch.randn(2, 0, 10))
    assert [tuple(call.weights.shape) for call in seen.calls] == [(0, 2, 3, 3), (2, 2, 1, 1), (2, 2, 0, 0)]
    assert bool((seen.calls[1].weights == 1).all())


def test_another_function_mode_stays():
    class Counting(torch.overrides.TorchFunctionMode):
        count = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counting.count += func is SDPA
            return func(*args, **(kwargs or {}))

    model = Heads(captured(SDPA))
    with Counting(), regard.watch(model) as seen:
        model(torch.randn(1, 3, 10))
    with regard.watch(model) as again, Counting():
        model(torch.randn(1, 3, 10))
    assert (len(seen.calls), len(again.calls), Counting.count) == (1, 1, 2)


def test_nan_is_shown():
    model = Heads(HAND_WRITTEN["sdpa"][0])
    x = torch.randn(2, 3, 10)
    x[1, 1] = torch.nan
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
        model(x)
    (call,) = seen.calls
    assert not call.weights[0].isnan().any()
    assert call.weights[1].isnan().any()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_calls_that_cannot_be_read_are_told():
    model, x = stack(1), torch.randn(4, 2, 3, 10)
    with pytest.raises(UnseenError, match=r"that of '0': a torch\.func transform is active"), regard.watch(model):
        torch.vmap(model)(x)
    meta = stack(1).to("meta")
    with pytest.raises(UnseenError, match="that of '0': its tensors are on the meta device"), regard.watch(meta):
        meta(x[0].to("meta"))
    expected = torch.vmap(model)(x)
    both = nn.ModuleList([model])
    both.forward = lambda: (model(x[0]), torch.vmap(model)(x))
    with pytest.warns(UnseenAttentionWarning, match="'0.0'"), regard.watch(both) as seen:
        _, found = both()
    assert torch.equal(found, expected)
    assert len(seen.calls) == 1


def test_queries_and_keys_of_different_numbers_have_their_own_tokens():
    """Also where they come from one sequence: the last two of five tokens attend to all five."""

    class Tail(torch.nn.Module):
        def forward(self, x):
            return regard.attend(x[:, :, -2:], x, x, mask="causal")

    model = Tail()
    with regard.watch(model, read=regard.Readings(weights=True)) as seen:
        model(torch.randn(1, 2, 5, 4))
    assert seen.calls[0].kind == "causal"
    (record,) = seen.document(["d", "e"], ["a", "b", "c", "d", "e"]).records
    assert (record.queries.labels, record.keys.labels) == (("d", "e"), ("a", "b", "c", "d", "e"))
    line = r"2 queries and 5 keys; there are 4 tokens for its queries: give 2 tokens of the queries, 5 of the keys"
    with pytest.raises(ShapeError, match=line):
        seen.document(["a", "b", "c", "d"])


def test_the_tables_of_a_context_and_of_a_call_show_no_quotes():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 3, 8))
    for text in (seen._repr_html_(), seen.calls[0]._repr_html_(), str(seen.calls[0])):
        cells = re.sub(r"style='[^']*'", "", text)
        assert "self" in cells
        assert not re.search(r"['\"]|&#x27;|&quot;", cells)
