"""What layers are called with elsewhere is answered with the argument that is meant; the answer runs."""

import re
from functools import partial
from importlib import import_module
from typing import get_args

import pytest
import torch

import regard
from regard import biases, masks, nn, normalizers, pictures, positions, scores, watching
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.models.pointer_generator import PointerState
from regard.models.pointer_network import PointingState
from regard.models.recurrent_decoder import DecoderState
from regard.models.speech.joint_search import JointState
from regard.models.transformer_decoding import TransformerState
from regard.names.answered import answered
from regard.names.foreign_arguments import CACHES, LAYER_KEYWORDS, argument_names
from regard.names.foreign_names import POSITION_NAMES, WRITTEN_HERE
from regard.names.missing_names import ATTRIBUTES, CALLED_PACKAGES, MISSING_NAMES
from regard.nn.attention_names import CLASSES, AttentionName
from regard.nn.named_positions import RELATIVE_POSITIONS
from regard.tasks.classify import Classification, TrainedClassifier
from regard.watching import Watch

BATCH, LENGTH, DIM = 2, 5, 8
INPUT = torch.randn(BATCH, LENGTH, DIM, generator=torch.Generator().manual_seed(0))
NAMES = {
    "scores": scores, "positions": positions, "masks": masks, "normalizers": normalizers, "cap": 2.0, "dim": DIM // 2,
    "features": 7, "query_dim": DIM // 2, "windows": 3, "torch": torch,
    "log_decay": torch.zeros(2), "beta": torch.zeros(2, 2, LENGTH),
}  # fmt: skip

NUMBERS = {
    "dim": DIM, "max_length": LENGTH, "factor": 2.0, "original_length": 3, "share": 0.5, "features": (4, 4),
    "short_factor": (1.0,) * 4, "long_factor": (2.0,) * 4, "grid": (2, 3), "pairs": (2, 1, 1), "biases": biases,
    "num_heads": 2, "head_dim": DIM // 2, "span": 3, "height": 2, "width": 3,
}  # fmt: skip
"""The names in the lines of positions."""

ENCODER_LAYER = nn.TransformerEncoderLayer(DIM, 2, 16, dropout=0.0, batch_first=True)
LAYERS = {
    "TransformerEncoderLayer": (ENCODER_LAYER, 1),
    "TransformerEncoder": (nn.TransformerEncoder(ENCODER_LAYER, 1), 1),
    "TransformerDecoderLayer": (nn.TransformerDecoderLayer(DIM, 2, 16, dropout=0.0, batch_first=True), 2),
    "Transformer": (nn.Transformer(DIM, 2, 1, 1, 16, dropout=0.0, batch_first=True), 2),
    "MultiheadAttention": (nn.MultiheadAttention(DIM, 2, batch_first=True), 3),
}
LAYER = "encoder_layer=TransformerEncoderLayer"
CONSTRUCTORS = {
    "TransformerEncoderLayer": (nn.TransformerEncoderLayer, DIM, 2),
    "TransformerDecoderLayer": (nn.TransformerDecoderLayer, DIM, 2),
    "MultiheadAttention": (nn.MultiheadAttention, DIM, 2),
}
VALUES = {
    "attn_mask": torch.zeros(LENGTH, LENGTH, dtype=torch.bool),
    "mask": torch.zeros(LENGTH, LENGTH, dtype=torch.bool),
    "key_padding_mask": torch.zeros(BATCH, LENGTH, dtype=torch.bool),
    "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
    "lengths": torch.tensor([3, 5]),
    "causal": True,
}


@pytest.mark.parametrize("name", WRITTEN_HERE["score"])
def test_a_layer_knows_the_names_of_scores_elsewhere(name):
    with pytest.raises(UnknownNameError, match=re.escape(repr(name))) as raised:
        nn.TransformerEncoderLayer(DIM, 2, 16, score=name)
    with pytest.raises(UnknownNameError) as of_config:
        nn.LayerConfig(score=name)
    for error, limit in ((raised, None), (of_config, str)):
        line = re.search(r"here it is (\w+)=(.+?)(?: divided by .*)? \(known", str(error.value))
        for part in [] if line is None else re.split(r", (?=\")| or ", line[2]):
            arguments = eval(f"dict({line[1]}={part.strip(', ')})", dict(NAMES))
            assert limit is None or isinstance(arguments[line[1]], limit)
            meant = CLASSES.get(arguments.get("attention"))
            nn.TransformerEncoderLayer(DIM, 2, 16, bidirectional=meant is None or not meant.is_causal, **arguments)
        of_steps = re.search('"(location|coverage|dynamic_convolution)', WRITTEN_HERE["score"][name])
        assert line is not None or of_steps or limit is str


@pytest.mark.parametrize("name", WRITTEN_HERE["position"])
@pytest.mark.parametrize("make", [lambda name: nn.TransformerEncoderLayer(DIM, 2, position=name),
                                  lambda name: nn.LayerConfig(position=name)], ids=["layer", "config"])  # fmt: skip
def test_a_layer_knows_the_names_of_positions_elsewhere(make, name):
    with pytest.raises(UnknownNameError, match="here it is position=") as raised:
        make(name)
    line = re.search(r"here it is position=(.+) \(known", str(raised.value))
    assert line is not None
    for position in re.findall(r'"(\w+)"', line[1]):
        make(position)
    written = re.search(r"(positions|biases)\..+\)", line[1])
    assert (written is None) == (line[1].strip('"') in RELATIVE_POSITIONS or " or " in line[1])
    if written is not None:
        module = eval(written[0], NAMES | NUMBERS)
        assert written[1] == "biases" or module(INPUT).shape == INPUT.shape
        assert '"none", with ' in line[1] or make(module)


@pytest.mark.parametrize("name", WRITTEN_HERE["attention"])
@pytest.mark.parametrize("ending", ["", "_attention", " Attention"])
def test_a_layer_knows_the_names_of_attentions_elsewhere(name, ending):
    if name + ending in get_args(AttentionName):
        return
    with pytest.raises(UnknownNameError, match="here it is attention=") as raised:
        nn.TransformerEncoderLayer(DIM, 2, 16, attention=name + ending)
    line = re.search(r"here it is (.+) \(known", str(raised.value))
    assert line is not None
    arguments = eval(f"dict({line[1]})", NAMES | {"kv_heads": 1})
    meant = CLASSES.get(arguments["attention"])
    nn.TransformerEncoderLayer(DIM, 2, 16, bidirectional=meant is None or not meant.is_causal, **arguments)


@pytest.mark.parametrize(
    ("name", "line"), [("alibi", 'position="alibi"'), ("sparsemax", 'normalizer="sparsemax"'), ("t5", 'position="t5"')]
)
def test_a_name_of_another_argument_of_a_layer_names_that_argument(name, line):
    assert set(RELATIVE_POSITIONS) == {"none", *POSITION_NAMES}
    with pytest.raises(UnknownNameError, match=f"here it is {line} "):
        nn.TransformerEncoderLayer(DIM, 2, 16, score=name)


def lines_of(message):
    return [line.split(" (")[0] for line in re.sub(r"^.*?: write ", "", message).split(" or ")]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_foreign_argument_of_a_call_is_answered_with_one_that_runs(layer, name):
    module, inputs = LAYERS[layer]
    arguments = (INPUT,) * inputs
    try:
        module(*arguments, **{name: VALUES[name]})
    except KindError as error:
        message = str(error)
    else:
        return  # the layer has this argument
    if "must not be a bool tensor" in message:
        return  # an argument of the stack, whose meaning would be a guess
    assert message.startswith(f"the call of {layer} has no argument {name!r}: write ")
    for line in lines_of(message):
        argument, value = line.split("=", 1)
        module(*arguments, **{argument: eval(value, {**VALUES, "masks": masks})})


@pytest.mark.parametrize("name", [name for name in LAYER_KEYWORDS if name not in ("heads", "n_heads", "num_heads")])
@pytest.mark.parametrize("layer", CONSTRUCTORS)
def test_a_foreign_argument_of_a_constructor_names_the_public_class(layer, name):
    create, *sizes = CONSTRUCTORS[layer]
    if name in argument_names(create):
        return
    with pytest.raises(KindError, match=f"^{layer} has no argument {name!r}"):
        create(*sizes, **{name: True})


@pytest.mark.parametrize(
    ("name", "line"), [("rope", 'position="rotary"'), ("kvheads", "kv_heads=kvheads"), ("alibi", 'position="alibi"')]
)
@pytest.mark.parametrize("create", [nn.TransformerEncoderLayer, nn.MultiheadAttention, nn.Transformer])
def test_a_foreign_argument_of_a_constructor_has_its_line(create, name, line):
    with pytest.raises(KindError, match=re.escape(f"write {line}")):
        create(DIM, 2, **{name: 1})


@pytest.mark.parametrize(
    ("create", "line"),
    [
        (lambda: nn.TransformerEncoderLayer(d_model=8, num_heads=2), "nhead=num_heads"),
        (lambda: nn.MultiheadAttention(hidden_size=8, num_attention_heads=2), "embed_dim=hidden_size"),
        (lambda: nn.MultiheadAttention(num_heads=2, key_dim=4), "embed_dim=num_heads * key_dim"),
        (lambda: nn.TransformerEncoder(ENCODER_LAYER, depth=2), "num_layers=depth"),
        (lambda: nn.TransformerDecoder(LAYERS["TransformerDecoderLayer"][0], n_layers=2), "num_layers=n_layers"),
        (lambda: nn.TransformerEncoder(dim=8, depth=2, heads=2), f"{LAYER}(d_model=dim, nhead)"),
        (lambda: nn.TransformerEncoder(ENCODER_LAYER, 2, rope=True), f'{LAYER}(d_model, nhead, position="rotary")'),
        (lambda: nn.TransformerEncoder(ENCODER_LAYER, 2, kv_heads=1), f"{LAYER}(d_model, nhead, kv_heads=kv_heads)"),
        (lambda: nn.TransformerEncoder(ENCODER_LAYER, 2, causal=True), 'mask="causal" in the call'),
        (lambda: nn.Transformer(8, n_head=2), "nhead=n_head"),
        (lambda: nn.Transformer(8, 2, num_kv_heads=1), "kv_heads=num_kv_heads"),
        (lambda: nn.CBAM(in_channels=3), "channels=in_channels"),
        (lambda: nn.TransformerEncoderLayer(8), "TransformerEncoderLayer(d_model, nhead) (known: d_model"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_a_constructor_name_the_class_and_the_line(create, line):
    with pytest.raises(KindError, match=rf"^[A-Z]\w+(: | has no argument ).*write {re.escape(line)}"):
        create()


DECODERS = {**LAYERS, "TransformerDecoder": (nn.TransformerDecoder(LAYERS["TransformerDecoderLayer"][0], 1), 2)}


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("layer", DECODERS)
def test_a_cache_that_a_layer_does_not_take_is_answered_with_what_decodes(layer, name):
    module, inputs = DECODERS[layer]
    with pytest.raises(KindError) as raised:
        module(*(INPUT,) * inputs, **{name: nn.KeyValueCache()})
    statements = re.findall(r"[\w, ]+ = [^;]+", re.sub(r"^.*?: ", "", str(raised.value)).replace("write ", ""))
    made = {"nn": nn, "layer": module, "encoder": module, "decoder": module, "transformer": module, "num_layers": 1,
            "embed_dim": DIM, "num_heads": 2, "x": INPUT, "tokens": INPUT, "memory": INPUT, "caches": None}  # fmt: skip
    for statement in statements:
        exec(statement.split("does: ")[-1].strip(), made)
    cache = made["caches"][0] if made["caches"] else made["cache"]
    assert cache.length == LENGTH


ATTENTION = nn.Attention.create("additive", DIM, DIM)
LINES = {
    "write attention(query, annotations)": [lambda: ATTENTION(INPUT, INPUT, INPUT), lambda: ATTENTION(INPUT)],
    "write layer(query, key, value)": [lambda: LAYERS["MultiheadAttention"][0](INPUT, INPUT)],
    "write need_weights=return_attention_scores": [
        lambda: LAYERS["MultiheadAttention"][0](INPUT, INPUT, return_attention_scores=True)
    ],
    "did you mean 'top_k'?": [lambda: regard.Readings(topk=3)],
    "write alpha=torch.nn.Parameter(torch.tensor(alpha))": [
        lambda: normalizers.Entmax(alpha=1.3, trainable=True), lambda: normalizers.Entmax(1.3, learnable=True)
    ],
    "write dim=dim in the call": [lambda: normalizers.Softmax(dim=-1)],
    "write columns=xlabels": [lambda: pictures.heatmap([[1.0]], xlabels=["a"])],
    "write View(content, rows=rows, columns=columns)": [lambda: regard.View([[1.0]], ["a"], ["b"])],
    'write score=scores.Modified("scaled_dot", score_mod)': [
        lambda: regard.attend(INPUT, INPUT, INPUT, score=lambda score, b, h, i, j: score)
    ],
    "normalizer's function must take 1 tensors": [lambda: normalizers.as_normalizer(lambda score, key: score)],
    'log_softmax gives logarithms, which are no weights: write normalizer="softmax"': [
        lambda function=function: normalizers.as_normalizer(function)
        for function in (torch.log_softmax, torch.nn.functional.log_softmax, torch.nn.LogSoftmax(-1),
                         partial(torch.log_softmax, dim=-1))
    ],
    'write scores.SoftCap("scaled_dot", cap)': [lambda: scores.SoftCap(5.0), lambda: scores.SoftCap(cap=5.0)],
    'write scores.Modified("scaled_dot", score_mod)': [lambda: scores.Modified(5.0)],
    'write scores.Decayed("scaled_dot", log_decay)': [lambda: scores.Decayed(INPUT)],
    'write scores.DeltaRule("cosine", beta)': [lambda: scores.DeltaRule(INPUT)],
    'a function of scores is a score: write score=scores.Modified("scaled_dot", score_mod)': [
        lambda: regard.attend(INPUT, INPUT, INPUT, bias=lambda score, b, h, i, j: score)
    ],
    'write mask="causal" in the call': [
        lambda layer=layer: layer(DIM, 2, causal=True)
        for layer in (nn.SelfAttention, nn.DifferentialAttention, nn.LatentAttention, nn.Retention, nn.DeltaNet,
                      nn.GatedDeltaNet, nn.NativeSparseAttention, nn.IndexedAttention, nn.CompressedAttention)
    ],
    'write position="rotary"': [lambda: nn.SelfAttention(DIM, 2, rope=True)],
    "write position=positions": [lambda: nn.SelfAttention(DIM, 2, positions="rotary")],
    "is a package and no function: write regard.attend(query, key, value)": [
        lambda: regard.attention(INPUT, INPUT, INPUT)
    ],
    "takes no length, since it grows: KeyValueCache()": [lambda: nn.KeyValueCache(128)],
    "write with watching.ablate(model, layer, head)": [lambda: watching.ablate(ENCODER_LAYER, [(0, 1)])],
    "write watching.logit_contributions(model, watched.calls[0], token_ids=[7])": [
        lambda: watching.logit_contributions(INPUT, 7)
    ],
    'write device="cuda"': [lambda: nn.MultiheadAttention(DIM, 2, device="gpu")],
    "create has no argument 'device'": [lambda: scores.create("additive", DIM, DIM, device="cpu")],
}  # fmt: skip


@pytest.mark.parametrize(("line", "call"), [(line, call) for line, calls in LINES.items() for call in calls])
def test_a_wrong_call_is_one_error_with_the_line(line, call):
    with pytest.raises((KindError, ArgumentError), match=re.escape(line)):
        call()


@pytest.mark.parametrize("name", ["score", "mask", "bias", "normalizer"])
def test_a_function_of_no_module_is_a_function(name):
    def function(b, h, i, j):
        return i

    function.__module__ = None
    with pytest.raises(KindError, match="function"):
        regard.attend(INPUT, INPUT, INPUT, **{name: function})


def test_a_type_error_of_a_function_itself_stays():
    def title(*_):
        raise TypeError("its own")

    with pytest.raises(TypeError, match="its own"):
        answered(title)(1)


def test_attn_mask_of_multihead_attention_may_be_a_mask_or_its_name():
    attention = nn.MultiheadAttention(DIM, 2, batch_first=True)
    hidden = torch.ones(LENGTH, LENGTH).triu(1).bool()
    expected = attention(INPUT, INPUT, INPUT, attn_mask=hidden)
    for mask in ("causal", masks.causal(), masks.ignore(hidden)):
        output, weights = attention(INPUT, INPUT, INPUT, attn_mask=mask)
        torch.testing.assert_close(output, expected[0])
        torch.testing.assert_close(weights, expected[1])


def test_an_encoder_adds_numbers_beside_a_mask_by_name():
    encoder = nn.TransformerEncoder(ENCODER_LAYER, 1).eval()
    numbers = torch.linspace(-1, 1, LENGTH * LENGTH).view(LENGTH, LENGTH)
    hidden = numbers.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf)
    torch.testing.assert_close(encoder(INPUT, src_mask="causal", mask=numbers), encoder(INPUT, src_mask=hidden))
    with pytest.raises(ArgumentError, match="both tensors"):
        encoder(INPUT, src_mask=numbers, mask=numbers)


def test_lengths_of_the_other_layout_name_the_layout():
    with pytest.raises(ShapeError, match=r"lengths must be \[batch\] = \[5\].*batch_first"):
        nn.TransformerEncoderLayer(DIM, 2)(INPUT, lengths=torch.tensor([3, 5]))


def test_lengths_outside_of_the_keys_name_the_row():
    with pytest.raises(ArgumentError, match=r"masks\.lengths: keys\[1\] must be in 0\.\.5; it is 7"):
        nn.MultiheadAttention(DIM, 2, batch_first=True)(INPUT, INPUT, INPUT, mask=masks.lengths([4, 7]))


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package, names in MISSING_NAMES.items() for name in names]
)
def test_a_missing_name_is_answered_with_the_line(package, name):
    module = import_module(package)
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value).endswith(f"has no attribute {name!r}: here it is {MISSING_NAMES[package][name]}")
    for part in re.findall(
        r"(regard\.)?(nn|masks|positions|normalizers|pictures|scores|biases|watching)\.(\w+)",
        MISSING_NAMES[package][name],
    ):
        assert hasattr(import_module(f"regard.{part[1]}"), part[2])


OWNERS = {
    "Watch": Watch, "View": regard.View, "KeyValueCache": nn.KeyValueCache, "Classification": Classification,
    "TableTrained": TrainedClassifier, "AttentionCall": watching.AttentionCall, "Survey": watching.Survey,
    "DecoderState": DecoderState, "JointState": JointState,
    "PointerState": PointerState, "PointingState": PointingState, "TransformerState": TransformerState,
}  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in ATTRIBUTES.items() for name in names])
def test_a_missing_attribute_is_answered_with_the_line(owner, name):
    thing = object.__new__(OWNERS[owner])
    with pytest.raises(AttributeError, match=f"object has no attribute {name!r}: here it is ") as raised:
        getattr(thing, name)
    assert (raised.value.name, raised.value.obj) == (name, thing)
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = thing.nothing


@pytest.mark.parametrize("package", CALLED_PACKAGES)
def test_a_package_that_is_called_names_the_function(package):
    function = re.match(r"regard\.(\w+)\(", CALLED_PACKAGES[package])
    assert function is not None
    assert hasattr(regard, function[1])
    message = f"{package} is a package and no function: write {CALLED_PACKAGES[package]}"
    with pytest.raises(KindError, match=re.escape(message)):
        import_module(package)(INPUT)
