"""Attention as tutorials and papers write it by hand: functions of queries, keys and values.

Each is a function of ``query [batch, queries, 7]`` and ``memory [batch, keys, 7]``, which gives its output and the
weights that it made, as ``[batch, heads, queries, keys]``.
"""

import torch
from torch import nn
from torch.nn import functional as F

MATRIX = torch.randn(7, 7, generator=torch.Generator().manual_seed(1))
VECTOR = torch.randn(7, generator=torch.Generator().manual_seed(2))
HOPS = torch.randn(3, 7, generator=torch.Generator().manual_seed(3))
PAST = torch.tensor([[True] * 5, [True] * 3 + [False] * 2, [True] * 4 + [False]])
"""The keys of three batch rows that are no padding."""


def energies(query, memory):
    """Additive scores ``[batch, keys]`` of one query for each row."""
    return torch.tanh(query[:, :1] @ MATRIX + memory) @ VECTOR


def row(weights):
    """``[batch, 1, 1, keys]`` of ``[batch, keys]``."""
    return weights[:, None, None]


def bahdanau(query, memory):
    scores = torch.tanh(query[:, :1] + memory @ MATRIX) @ VECTOR[:, None]  # [B, K, 1]
    weights = F.softmax(scores.squeeze(2).unsqueeze(1), dim=-1)  # [B, 1, K]
    return torch.bmm(weights, memory), weights[:, None]


def additive_seq2seq(query, memory):
    repeated = query[:, :1].repeat(1, memory.shape[1], 1)
    energy = torch.tanh(torch.cat((repeated, memory), dim=2)[..., :7])
    attention = F.softmax((energy @ VECTOR[:, None]).squeeze(2), dim=1)
    return torch.bmm(attention.unsqueeze(1), memory).permute(1, 0, 2), row(attention)


def additive_masked(query, memory):
    scores = energies(query, memory).masked_fill(~PAST[: len(memory)], -1e10)
    attention = torch.softmax(scores, dim=1)
    return torch.bmm(attention.unsqueeze(1), memory), row(attention)


def luong(query, memory):
    hidden, outputs = query[:, :1].transpose(0, 1), memory.transpose(0, 1)  # [1, B, D], [K, B, D]
    energy = torch.sum(hidden * outputs, dim=2).t()
    weights = F.softmax(energy, dim=1).unsqueeze(1)
    return weights.bmm(outputs.transpose(0, 1)), weights[:, None]


def dot_of_products(query, memory):
    scores = (query[:, :1] * memory).sum(2)
    weights = scores.softmax(1)
    return (weights.unsqueeze(-1) * memory).sum(1), row(weights)


def sequence_first(query, memory):
    memory = memory.transpose(0, 1)  # [K, B, D]
    weights = torch.softmax((query[:, 0] * memory).sum(-1), dim=0)  # [K, B]
    return (weights[..., None] * memory).sum(dim=0), row(weights.t())


def sequence_first_einsum(query, memory):
    memory = memory.transpose(0, 1)
    weights = torch.einsum("bd,kbd->kb", query[:, 0], memory).softmax(0)
    return torch.einsum("kb,kbd->bd", weights, memory), row(weights.t())


def show_attend_and_tell(query, memory):
    alpha = nn.Softmax(dim=1)(energies(query, memory))
    return (memory * alpha.unsqueeze(2)).sum(dim=1), row(alpha)


def hierarchical(query, memory):
    """The word attention of hierarchical attention networks: exponentials, divided by their sum."""
    scores = energies(query, memory)
    scores = torch.exp(scores - scores.max())
    alphas = scores / torch.sum(scores, dim=1, keepdim=True)
    return (memory * alphas.unsqueeze(2)).sum(dim=1), row(alphas)


def hierarchical_packed(query, memory):
    lengths = PAST[: len(memory)].sum(1)
    pack = nn.utils.rnn.pack_padded_sequence(memory, lengths, batch_first=True, enforce_sorted=False)
    scores = (torch.tanh(pack.data) @ VECTOR[:, None]).squeeze(1)
    scores = torch.exp(scores - scores.max())
    scores, _ = nn.utils.rnn.pad_packed_sequence(
        nn.utils.rnn.PackedSequence(scores, pack.batch_sizes, pack.sorted_indices, pack.unsorted_indices),
        batch_first=True,
    )
    alphas = scores / torch.sum(scores, dim=1, keepdim=True)
    memory, _ = nn.utils.rnn.pad_packed_sequence(pack, batch_first=True)
    return (memory * alphas.unsqueeze(2)).sum(dim=1), row(alphas)


def hierarchical_expanded(query, memory):
    weights = F.softmax(energies(query, memory), dim=1)
    return torch.mul(memory, weights.unsqueeze(2).expand_as(memory)).sum(1), row(weights)


def repeated(query, memory):
    weights = F.softmax(energies(query, memory), dim=1)
    return torch.sum(weights.unsqueeze(2).repeat(1, 1, 7) * memory, 1), row(weights)


def self_attentive(query, memory):
    """Structured self-attentive sentence embedding: several hops over one sequence."""
    hops = torch.softmax(torch.tanh(memory @ MATRIX) @ HOPS.t(), dim=1).transpose(1, 2)  # [B, 3, K]
    return torch.bmm(hops, memory), hops[:, None]


def hops_from_the_right(query, memory):
    hops = torch.softmax(memory @ HOPS.t(), dim=-2)  # [B, K, 3]
    return memory.transpose(1, 2) @ hops, hops.transpose(1, 2)[:, None]


def over_columns(query, memory):
    scores = memory @ query.transpose(1, 2)  # [B, K, Q]
    weights = scores.softmax(-2)
    return torch.einsum("bkq,bkd->bqd", weights, memory), weights.transpose(1, 2)[:, None]


def keras_like(query, memory):
    weights = torch.einsum("bid,bjd->bij", query, memory).softmax(-1)
    return torch.einsum("bij, bjd -> bid", weights, memory), weights[:, None]


def einsum_of_three(query, memory):
    weights = torch.einsum("bid,bjd->bij", query, memory).softmax(-1)
    return torch.einsum("bij,bjd,de->bie", weights, memory, MATRIX), weights[:, None]


def einsum_with_dots(query, memory):
    weights = torch.einsum("...id,...jd->...ij", query, memory).softmax(-1)
    return torch.einsum("...ij,...jd", weights, memory), weights[:, None]


def logarithms(query, memory):
    weights = F.log_softmax(query @ memory.transpose(1, 2), dim=-1).exp()
    return weights @ memory, weights[:, None]


def log_sum_exp(query, memory):
    scores = query @ memory.transpose(1, 2)
    weights = torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True))
    return weights @ memory, weights[:, None]


def by_exponentials(query, memory):
    scores = query @ memory.transpose(1, 2)
    scores = (scores - scores.amax(-1, keepdim=True)).exp() * PAST[: len(memory), None]
    weights = scores / (scores.sum(-1).unsqueeze(-1) + 1e-9)
    return weights @ memory, weights[:, None]


def cosine(query, memory):
    scores = F.cosine_similarity(query[:, :, None], memory[:, None], dim=-1)
    weights = F.softmax(10 * scores, dim=-1)
    return weights @ memory, weights[:, None]


def neural_turing_machine(query, memory):
    content = F.softmax(3 * F.cosine_similarity(query[:, :1], memory, dim=-1), dim=1)
    weights = 0.75 * content + 0.25 * torch.full_like(content, 0.2)
    weights = weights**1.5
    weights = torch.div(weights, torch.sum(weights, dim=1).view(-1, 1) + 1e-16)
    return torch.matmul(weights.unsqueeze(1), memory).squeeze(1), row(weights)


def memory_network(query, memory):
    weights = F.softmax(torch.sum(memory * query[:, :1], 2), 1)
    return torch.sum(memory * weights.unsqueeze(2), 1), row(weights)


def slots(query, memory):
    """Slot attention: the softmax is over the slots, then the weights are divided by their sum over the inputs."""
    weights = torch.einsum("bid,bjd->bij", query, memory).softmax(dim=1) + 1e-8
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return torch.einsum("bjd,bij->bid", memory, weights), weights[:, None]


def renormalized(query, memory):
    weights = F.softmax(query @ memory.transpose(1, 2), dim=-1)
    weights = F.normalize(weights * PAST[: len(memory), None], p=1, dim=-1)
    return weights @ memory, weights[:, None]


def renormalized_in_place(query, memory):
    weights = torch.softmax(query @ memory.transpose(1, 2), -1)
    weights = weights * PAST[: len(memory), None]
    weights /= weights.sum(-1, keepdim=True)
    return weights @ memory, weights[:, None]


def non_local(query, memory):
    theta, phi, g = query.transpose(1, 2), memory.transpose(1, 2), memory.transpose(1, 2)  # [B, D, places]
    attention = torch.softmax(theta.transpose(1, 2) @ phi, dim=-1)
    return torch.bmm(g, attention.permute(0, 2, 1)), attention[:, None]


def global_context(query, memory):
    image = memory.transpose(1, 2)  # [B, D, places]
    context = torch.softmax((image * VECTOR[:, None]).sum(1, keepdim=True), dim=2)  # [B, 1, places]
    return torch.matmul(image.unsqueeze(1), context.unsqueeze(-1)), context[:, None]


def image_places(query, memory):
    """A softmax over the places of an image, whose two axes are added up."""
    image = memory[:, :4].transpose(1, 2).unflatten(2, (2, 2))  # [B, D, 2, 2]
    weights = F.softmax((image * VECTOR[:, None, None]).sum(1).flatten(1), dim=-1).view(-1, 1, 2, 2)
    return (image * weights).sum(dim=(2, 3)), weights.flatten(2)[:, None]


def graph(query, memory):
    """Graph attention on a dense adjacency matrix: nodes of one graph."""
    nodes = memory[0]
    scores = F.leaky_relu((nodes @ VECTOR)[:, None] + (nodes @ MATRIX @ VECTOR)[None, :], 0.2)
    scores = torch.where(torch.eye(5) + PAST[1] > 0, scores, -9e15)
    attention = F.softmax(scores, dim=1)
    return torch.matmul(F.dropout(attention, 0.5, training=True), nodes), attention[None, None]


def graph_of_heads(query, memory):
    nodes = torch.stack((memory[0], memory[0] @ MATRIX), dim=1)  # [nodes, heads, D]
    scores = F.leaky_relu((nodes @ VECTOR)[:, None] + (nodes @ VECTOR.flip(0))[None])  # [nodes, nodes, heads]
    attention = scores.softmax(dim=1)
    return torch.einsum("ijh,jhf->ihf", attention, nodes), attention.permute(2, 0, 1)[None]


def heads_of(tensor):
    return torch.stack((tensor, tensor @ MATRIX), dim=1)  # [B, 2, length, D]


def transformer(query, memory):
    q, k = heads_of(query), heads_of(memory)
    scores = torch.matmul(q, k.transpose(-2, -1)) / 7**0.5
    scores = scores.masked_fill(PAST[: len(memory), None, None] == 0, -1e9)
    weights = scores.softmax(dim=-1)
    return F.dropout(weights, p=0.1) @ k, weights


def transformer_of_rounded_weights(query, memory):
    q, k = heads_of(query).bfloat16(), heads_of(memory).bfloat16()
    weights = F.softmax(q @ k.mT, dim=-1, dtype=torch.float32)
    return weights.to(q.dtype) @ k, weights


def transformer_of_merged_heads(query, memory):
    q, k = heads_of(query), heads_of(memory)
    weights = (q @ k.mT).softmax(-1)
    merged = F.dropout(weights, 0.25).view(-1, *weights.shape[2:])
    return torch.bmm(merged, k.flatten(0, 1)), weights


def transformer_of_heads_first(query, memory):
    """Heads in front of the batch, merged with it for the product alone."""
    q, k = heads_of(query), heads_of(memory)
    weights = (q @ k.mT).softmax(-1)
    merged = weights.transpose(0, 1).reshape(-1, *weights.shape[2:])
    return torch.bmm(merged, k.transpose(0, 1).flatten(0, 1)), weights


def transformer_of_transposed_heads(query, memory):
    q, k = heads_of(query).transpose(1, 2), heads_of(memory).transpose(1, 2)  # [B, length, heads, D]
    weights = torch.einsum("bqhd,bkhd->bqhk", q, k).softmax(-1)
    return torch.einsum("bqhk,bkhd->bqhd", weights, k), weights.transpose(1, 2)


def shared_keys(query, memory):
    """Multi-query attention: all heads have the same keys."""
    weights = torch.einsum("bhid,bjd->bhij", heads_of(query), memory).softmax(-1)
    return torch.einsum("b h i j, b j d -> b h i d", weights, memory), weights


def shared_keys_by_matmul(query, memory):
    weights = (heads_of(query) @ memory[:, None].mT).softmax(-1)
    return weights @ memory[:, None], weights


def gated_heads(query, memory):
    weights = (heads_of(query) @ heads_of(memory).mT).softmax(-1) * torch.tensor([1.0, 0.5])[:, None, None]
    return weights @ heads_of(memory), weights


def talking_heads(query, memory):
    weights = (heads_of(query) @ heads_of(memory).mT).softmax(-1)
    weights = torch.einsum("bhij,hg->bgij", weights, MATRIX[:2, :2].abs())
    return weights @ heads_of(memory), weights


def talking_heads_by_convolution(query, memory):
    weights = F.conv2d((heads_of(query) @ heads_of(memory).mT).softmax(-1), MATRIX[:2, :2, None, None].abs())
    return weights @ heads_of(memory), weights


def windows(query, memory):
    """Windows of an image, each with its own keys: ``[batch, windows, heads, queries, keys]``."""
    q, k = torch.stack((query, query), 1), torch.stack((memory, memory * 2), 1)
    q, k = heads_of(q.flatten(0, 1)).unflatten(0, (-1, 2)), heads_of(k.flatten(0, 1)).unflatten(0, (-1, 2))
    weights = (q @ k.mT).softmax(-1)
    return weights @ k, weights.flatten(0, 1)


def heads_of_pooling(query, memory):
    weights = torch.softmax(memory @ HOPS[:2].t(), dim=1)  # [B, K, heads]
    values = heads_of(memory).transpose(1, 2)  # [B, K, heads, D]
    return (weights.unsqueeze(-1) * values).sum(1), weights.transpose(1, 2)[:, :, None]


def all_queries_by_products(query, memory):
    scores = (torch.tanh(query[:, :, None] + memory[:, None]) * VECTOR).sum(-1)  # [B, Q, K]
    weights = torch.softmax(scores, 2)
    return (weights[..., None] * memory[:, None]).sum(2), weights[:, None]


def products_with_features_first(query, memory):
    weights = F.softmax(energies(query, memory), 1)
    return (memory.transpose(1, 2) * weights[:, None]).sum(-1), row(weights)


def unbatched(query, memory):
    weights = torch.softmax(memory[0] @ query[0, 0], dim=0)
    return weights @ memory[0], row(weights[None])


def by_mv(query, memory):
    weights = torch.softmax(memory[0] @ query[0, 0], dim=0)
    return torch.mv(memory[0].t(), weights), row(weights[None])


def by_tensordot(query, memory):
    weights = torch.softmax(query[0] @ memory[0].t(), dim=-1)
    return torch.tensordot(weights, memory[0], dims=([1], [0])), weights[None, None]


def by_inner(query, memory):
    weights = torch.softmax(query[0] @ memory[0].t(), dim=-1)
    return torch.inner(weights, memory[0].t()), weights[None, None]


def by_linear(query, memory):
    weights = torch.softmax(query[0] @ memory[0].t(), dim=-1)
    return F.linear(weights, memory[0].t()), weights[None, None]


def by_baddbmm(query, memory):
    weights = torch.softmax(query @ memory.transpose(1, 2), -1)
    return torch.baddbmm(query, weights, memory), weights[:, None]


def into_a_buffer(query, memory):
    weights = torch.softmax(query @ memory.transpose(1, 2), -1).detach()
    return torch.bmm(weights, memory.detach(), out=torch.empty(query.shape)) + query, weights[:, None]


def named_arguments(query, memory):
    weights = torch.softmax(input=query @ memory.transpose(1, 2), dim=2)
    weights = F.dropout(input=weights, p=0.0)
    return torch.bmm(input=weights, mat2=memory), weights[:, None]


def gumbel(query, memory):
    weights = F.gumbel_softmax(query @ memory.transpose(1, 2), tau=0.7, dim=-1)
    return weights @ memory, weights[:, None]


def soft_embedding(query, memory):
    weights = torch.softmax(query @ MATRIX, dim=-1)
    return weights @ MATRIX, weights[:, None]


def softmin(query, memory):
    weights = F.softmin(torch.cdist(query, memory), dim=-1)
    return weights @ memory, weights[:, None]


def rows_of_the_last_query(query, memory):
    weights = torch.softmax(query @ memory.transpose(1, 2), -1)[:, -1:]
    return weights @ memory, weights[:, None]


def pooling(query, memory):
    """Weights ``[batch, keys, 1]`` of a stack of layers that ends with a softmax."""
    weights = nn.Softmax(dim=1)(torch.tanh(memory @ MATRIX) @ VECTOR[:, None])
    return torch.sum(weights * memory, dim=1, keepdim=True), row(weights.squeeze(2))


def pooling_from_the_right(query, memory):
    weights = F.softmax(torch.bmm(memory, query[:, 0].unsqueeze(2)).squeeze(2), 1)
    return torch.bmm(memory.transpose(1, 2), weights.unsqueeze(2)).squeeze(2), row(weights)


def pooling_in_place(query, memory):
    weights = F.softmax(energies(query, memory), 1).unsqueeze(-1)
    return (memory * 1.0).mul_(weights).sum(axis=1), row(weights.squeeze(2))


def two_exponentials(query, memory):
    scores = query @ memory.transpose(1, 2)
    weights = torch.exp(scores) / torch.sum(torch.exp(scores), dim=2, keepdim=True)
    return weights @ memory, weights[:, None]


def query_to_context(query, memory):
    """The second direction of bidirectional attention flow."""
    similarity = memory @ query.transpose(1, 2)  # [B, K, Q]
    weights = F.softmax(torch.max(similarity, dim=2)[0], dim=-1).unsqueeze(1)
    return torch.bmm(weights, memory).repeat(1, 5, 1), weights[:, None]


def masked_after_the_softmax(query, memory):
    weights = F.softmax(energies(query, memory) * PAST[: len(memory)], dim=1) * PAST[: len(memory)]
    weights = weights / (weights.sum(dim=1, keepdim=True) + 1e-13)
    return weights.unsqueeze(1).bmm(memory).squeeze(1), row(weights)


def index_of_none(query, memory):
    weights = F.softmax(energies(query, memory), 1)
    return (weights[:, :, None] * memory).sum(-2), row(weights)


FORMS = {name: form for name, form in list(globals().items()) if getattr(form, "__module__", "") == __name__}
for _name in ("energies", "row", "heads_of"):
    del FORMS[_name]


class ByHand(nn.Module):
    """Attention of a form. It remembers the weights that it made."""

    def __init__(self, form):
        super().__init__()
        self.form, self.project, self.made = form, nn.Linear(7, 7), []
        if form is graph_of_heads:
            self.n_heads = 2  # nothing else tells heads from batch rows behind the keys

    def forward(self, query, memory):
        output, weights = self.form(self.project(query), self.project(memory))
        self.made.append(weights.detach().clone())
        return output
