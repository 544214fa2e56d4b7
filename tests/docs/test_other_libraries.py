"""The tables of what other libraries do: each row is run against the library where it is installed.

The heading of a table names the library and the version that was seen.
"""

import re
import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import regard
from book import pages
from regard import biases, scores

HIDDEN = torch.zeros(5, 5, dtype=torch.bool)
HIDDEN[2] = True
"""PyTorch's mask of a query that may see no key."""


def torch_weighted():
    """NaN if weights are asked for or the fast path runs, else the bias of the output projection."""
    module, x = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    torch.nn.init.normal_(module.out_proj.bias)
    assert module(x, x, x, attn_mask=HIDDEN)[0][:, 2].isnan().all()
    alone = module(x, x, x, attn_mask=HIDDEN, need_weights=False)[0]
    assert torch.equal(alone[:, 2], module.out_proj.bias.expand(2, -1))
    with torch.no_grad():
        assert module.eval()(x, x, x, attn_mask=HIDDEN, need_weights=False)[0][:, 2].isnan().all()


def torch_function():
    x = torch.randn(1, 1, 5, 8)
    assert not F.scaled_dot_product_attention(x, x, x, attn_mask=~HIDDEN)[0, 0, 2].any()


def torch_padding():
    """Outputs of padding are 0 on the fast path of an encoder, and computed elsewhere."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder, x = torch.nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nested tensors
        assert not encoder(x, src_key_padding_mask=padding)[1, 3:].any()
        assert layer(x, src_key_padding_mask=padding)[1, 3:].all()
    assert encoder(x, src_key_padding_mask=padding)[1, 3:].all()


def array(tensor):
    return np.asarray(getattr(tensor, "value", tensor).detach())  # of a variable, or of an output


def keras_inputs():
    pytest.importorskip("keras")
    import keras

    if keras.backend.backend() != "torch":
        pytest.skip("set KERAS_BACKEND=torch")
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    return keras, x, np.tile(~HIDDEN.numpy(), (2, 1, 1))


def keras_heads():
    """Without scores the mean of the values; with scores 0, before the output projection."""
    keras, x, visible = keras_inputs()
    for layer in (keras.layers.MultiHeadAttention(2, 4), keras.layers.GroupQueryAttention(4, 2, 2)):
        alone = array(layer(x, x, attention_mask=visible))
        output, weights = layer(x, x, attention_mask=visible, return_attention_scores=True)
        bias = array(layer._output_dense.bias)
        assert array(weights)[:, :, 2].max() == 0
        assert np.abs(array(output)[:, 2] - bias).max() < 1e-6
        value = np.einsum("bkd,dhv->bhv", x / 5, array(layer._value_dense.kernel)) + array(layer._value_dense.bias)
        mean = np.einsum("bhv,hvd->bd", value, array(layer._output_dense.kernel)) + bias
        assert np.abs(alone[:, 2] - mean).max() < 1e-5


def keras_single():
    keras, x, visible = keras_inputs()
    mean = x.mean(1, keepdims=True)
    for layer in (keras.layers.Attention(), keras.layers.AdditiveAttention()):
        assert np.abs(array(layer([x, x], mask=[None, np.zeros((2, 5), bool)])) - mean).max() < 1e-6
    heads = x[:, :, None]
    output = array(keras.ops.dot_product_attention(heads, heads, heads, mask=visible[:, None]))
    assert np.abs(output[:, 2, 0] - mean[:, 0]).max() < 1e-6


def keras_dropout_of_heads():
    keras, x, _ = keras_inputs()
    for layer in (
        keras.layers.MultiHeadAttention(2, 4, dropout=0.5),
        keras.layers.GroupQueryAttention(4, 2, 2, dropout=0.5),
    ):
        weights = array(layer(x, x, return_attention_scores=True, training=True)[1])
        assert np.abs(weights.sum(-1) - 1).max() < 1e-6


def keras_dropout_of_single():
    keras, x, _ = keras_inputs()
    for layer in (keras.layers.Attention(dropout=0.5), keras.layers.AdditiveAttention(dropout=0.5)):
        weights = array(layer([x, x], return_attention_scores=True, training=True)[1])
        assert (weights == 0).mean() > 0.2
        assert np.abs(weights.sum(-1) - 1).max() > 0.1


def keras_causal():
    keras, x, _ = keras_inputs()
    few, start = x[:, :3], np.tri(3, 5, dtype=bool)
    weights = keras.layers.MultiHeadAttention(2, 4)(few, x, use_causal_mask=True, return_attention_scores=True)[1]
    assert ((array(weights) > 0) == start).all()
    weights = keras.layers.Attention()([few, x], use_causal_mask=True, return_attention_scores=True)[1]
    assert ((array(weights) > 0) == start).all()
    expected = regard.attend(*map(torch.tensor, (few, x, x)), mask=regard.masks.causal(align="start"))
    output = keras.ops.dot_product_attention(few[:, :, None], x[:, :, None], x[:, :, None], is_causal=True)
    assert np.abs(array(output)[:, :, 0] - expected.numpy()).max() < 1e-6


def keras_mask_of_embedding():
    keras, _, _ = keras_inputs()
    embedded = keras.layers.Embedding(10, 8, mask_zero=True)(np.array([[1, 2, 3, 0, 0]]))
    first, second = (
        array(keras.layers.MultiHeadAttention(1, 4)(embedded, embedded, return_attention_scores=True)[1])
        for _ in range(2)
    )
    assert first[..., 3:].max() == 0
    assert second[..., 3:].min() > 0


def x_transformers_table():
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    heads, dim = 2, 16
    decoder = x_transformers.Decoder(dim=32, depth=1, heads=heads, attn_dim_head=dim, rel_pos_bias=True)
    (module,) = (one for one in decoder.modules() if isinstance(one, x_transformers.RelativePositionBias))
    table = module.relative_attention_bias.weight.detach()
    ours = biases.RelativeBias(heads, len(table), module.max_distance, bidirectional=False)
    ours.load_state_dict({"weight": table * dim**0.5})
    place = torch.arange(40)
    bias = ours.weight[ours.bucket(place - place[:, None])].permute(2, 0, 1)
    assert torch.allclose(bias, module(40, 40), atol=1e-6)


def x_transformers_cosine():
    x_transformers = pytest.importorskip("x_transformers.x_transformers")
    module, x = x_transformers.Attention(32, heads=2, dim_head=16, qk_norm=True), torch.randn(2, 7, 32)
    query, key, value = (
        each(x).unflatten(-1, (2, 16)).transpose(1, 2) for each in (module.to_q, module.to_k, module.to_v)
    )
    ours = regard.attend(query, key, value, score=scores.Cosine(0.1))
    theirs = module(x)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    assert torch.allclose(module.to_out(ours.transpose(1, 2).flatten(2)), theirs, atol=1e-5)


def entmax_at_1():
    """Equal weights for any scores; the limit is softmax."""
    entmax = pytest.importorskip("entmax")
    z = torch.tensor([[-2.0, 0.0, 0.5]])
    assert torch.allclose(entmax.entmax_bisect(z, alpha=1.0), torch.full((1, 3), 1 / 3))
    assert torch.allclose(entmax.entmax_bisect(z, alpha=1.001), z.softmax(-1), atol=1e-3)
    with pytest.raises(regard.errors.ArgumentError, match='normalizer="softmax"'):
        regard.normalizers.entmax(1.0)


def transformers_attentions():
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 97, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_attention_heads=4))
    model.set_attn_implementation("sdpa")
    ids = torch.tensor([[5, 6, 7]])
    assert model(ids, output_attentions=True).attentions == ()
    with pytest.raises(ValueError, match="eager"):
        model.config.output_attentions = True


PAGES = {
    "start/from-pytorch": ("PyTorch 2.13", [torch_weighted, torch_function, torch_padding]),
    "start/from-keras": (
        "Keras 3.15",
        [
            keras_heads,
            keras_single,
            keras_dropout_of_heads,
            keras_dropout_of_single,
            keras_causal,
            keras_mask_of_embedding,
        ],
    ),
    "start/from-x-transformers": ("x-transformers 2.31", [x_transformers_table, x_transformers_cosine]),
    "start/from-entmax": ("entmax 1.3", [entmax_at_1]),
    "start/from-hugging-face": ("transformers 5.24", [transformers_attentions]),
}
"""Page → the library and version in its table's head, and what each row says."""


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("page", PAGES)
def test_each_row_of_a_table_is_run(page, language):
    library, rows = PAGES[page]
    head = rf"^\|[^|\n]*\| {re.escape(library)}[^\n]*\n\|[-|]+\n((?:\|[^\n]*\n)+)"
    (table,) = re.findall(head, pages(language)[page], re.MULTILINE)
    assert len(table.splitlines()) == len(rows)


@pytest.mark.parametrize("says", [row for _, rows in PAGES.values() for row in rows], ids=lambda row: row.__name__)
def test_a_library_does_what_its_row_says(says):
    says()
