"""Multi-head attention, in the place of ``torch.nn.MultiheadAttention``."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import attend, weigh
from regard.attention.verbs import BackendName, Normalizing, Scoring
from regard.errors import ArgumentError, KindError, ShapeError
from regard.masks import Mask, as_mask, causal, lengths
from regard.nn.appended import AppendedBias, AppendedMask
from regard.nn.torch_masks import read_torch_masks
from regard.normalizers import as_normalizer
from regard.positions import Bias, Rotary, as_bias
from regard.scores import as_score


class MultiheadAttention(nn.MultiheadAttention):
    """A drop-in for `torch.nn.MultiheadAttention`, with any score, normalizer and position, and grouped heads.

    .. math:: MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O, \\quad head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

    Vaswani et al. 2017, section 3.2.2; grouped heads are those of Ainslie et al. 2023, section 2.2.

    Constructor, forward arguments, returned values, mask conventions (True: ignore), parameters, their initial values
    from a given seed and the ``state_dict`` are torch's. Four things are better, and so different:

    - A query that may see no key has weights 0 and gets the output projection's bias; torch gives NaN.
    - Returned weights are those before dropout: each row that sees a key sums to 1.
    - ``is_causal=True`` needs no ``attn_mask``; with one it is the hint that it is in torch, and the mask decides.
    - ``need_weights`` does not change a bit of the output: it is `attend`'s, and the weights, which are differentiable
      as torch's are, are computed beside it.

    `torch.nn.TransformerEncoderLayer` skips its attention module in evaluation and runs a kernel on its weights, which
    knows nothing of scores and gives NaN for rows that see nothing. It asks ``_qkv_same_embed_dim`` first, which is
    therefore False here: the layer always calls this module. Nested tensors, which `torch.nn.TransformerEncoder` makes
    of padded input in evaluation, are taken for self-attention.

    Args:
        embed_dim: features of a query and of the output.
        num_heads: query heads; they divide ``embed_dim``.
        dropout: probability of dropping a weight while training, in [0, 1).
        bias: whether the projections have biases.
        add_bias_kv: append one learned key and value, which everybody sees.
        add_zero_attn: append a key and value of zeros, which everybody sees.
        kdim: features of a key; ``embed_dim`` if not given.
        vdim: features of a value; ``embed_dim`` if not given.
        batch_first: ``[batch, length, features]`` instead of ``[length, batch, features]``.
        device, dtype: of the parameters.
        score: a name, a `Score` or a function, for heads ``[batch, heads, length, embed_dim / num_heads]``.
        normalizer: a name, a `Normalizer` or a function.
        kv_heads: key and value heads, a divisor of ``num_heads``. When fewer than ``num_heads``, the weights are
            ``q_proj_weight [embed_dim, embed_dim]``, ``k_proj_weight [kv_heads * head_dim, kdim]`` and
            ``v_proj_weight [kv_heads * head_dim, vdim]``: torch's module cannot load these.
        position: a `Rotary`, which turns the projected queries and keys, or a `Bias` (`RelativeBias`, ``alibi``), which
            is added to the scores. Appended keys have no position.
        backend: ``auto``, or one by name, which runs or raises.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        score: Scoring = "scaled_dot",
        normalizer: Normalizing = "softmax",
        kv_heads: int | None = None,
        position: Rotary | Bias | None = None,
        backend: BackendName = "auto",
    ):
        E
    
