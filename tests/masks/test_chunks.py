"""Masks by chunks, against loops over pairs and against the masks of models that have them."""

import itertools

import pytest
import torch

import regard
from dense_spans import dense_spans
from regard.errors import ArgumentError, KindError
from regard.masks import Mask, Visibility, block_diffusion, causal, chunks, documents
from regard.shapes.grid import Grid

SIZES = [(5, 7), (7, 5), (11, 11), (1, 7), (7, 1)]
EDGE = 2**61


def by_loop(queries, keys, size, before, after, offset):
    """Sees the pairs whose chunks are near enough, by integers of Python."""
    return torch.tensor(
        [
            [
                (before is None or (i + offset) // size - before <= j // size)
                and (after is None or j // size <= (i + offset) // size + after)
                for j in range(keys)
            ]
            for i in range(queries)
        ]
    )


def exact(allowed: torch.Tensor) -> Visibility:
    return Visibility.FULL if allowed.all() else Visibility.PARTIAL if allowed.any() else Visibility.EMPTY


@pytest.mark.parametrize("size", [1, 2, 3, 13, EDGE])
@pytest.mark.parametrize(
    ("before", "after"), [(0, 0), (1, 0), (None, 0), (0, 1), (2, None), (None, None), (EDGE, EDGE)]
)
def test_chunks_are_their_equation_in_every_form(size, before, after):
    for (queries, keys), align, offset in itertools.product(SIZES, ["end", "start"], [None, -3, 4, EDGE]):
        mask = chunks(size, before, after, align=align, offset=offset)
        grid = Grid.whole(2, 3, queries, keys)
        mask.check(grid)
        place = offset if offset is not None else keys - queries if align == "end" else 0
        expected = by_loop(queries, keys, size, before, after, place)
        assert torch.equal(mask.dense(grid), expected.expand(grid.shape))
        assert torch.equal(dense_spans(mask.spans(grid), grid)[0, 0], expected)
        assert mask.visibility(grid) is exact(expected)
        assert not mask.shows_all_rows(grid) or expected.any(1).all()
        assert not mask.shows_all_keys(grid) or expected.any(0).all()


@pytest.mark.parametrize(
    "mask", [chunks(3), chunks(2, 1), chunks(2, None, 0), chunks(3, 0, 1, "start"), chunks(4, offset=-5)]
)
def test_chunks_know_each_tile_exactly(mask: Mask):
    grid = Grid.whole(1, 1, 5, 7)
    for rows, columns in itertools.product(itertools.combinations(range(6), 2), itertools.combinations(range(8), 2)):
        tile = grid.tile(queries=range(*rows), keys=range(*columns))
        assert mask.visibility(tile) is exact(mask.dense(tile)), tile


def test_chunks_of_caches_of_different_lengths():
    mask = chunks(3, before=1, offset=torch.tensor([2, -4]))
    grid = Grid.whole(2, 3, 5, 7)
    for row, place in enumerate((2, -4)):
        expected = by_loop(5, 7, 3, 1, 0, place)
        assert torch.equal(mask.dense(grid)[row, 0], expected)
        assert torch.equal(dense_spans(mask.spans(grid), grid)[row, 0], expected)
    assert mask.visibility(grid) is Visibility.PARTIAL
    assert repr(mask) == "chunks(3, before=1, after=0, offset=[2, -4])"


def test_a_step_of_a_decoder_sees_its_chunk_so_far():
    mask = chunks(4) & causal()
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 11, 5).unbind()
    whole = regard.attend(query, key, value, mask=mask)
    for step in range(11):
        seen = key[:, :, : step + 1], value[:, :, : step + 1]
        torch.testing.assert_close(
            regard.attend(query[:, :, step : step + 1], *seen, mask=mask), whole[:, :, step : step + 1]
        )


def test_a_kernel_skips_other_chunks_even_if_they_hold_nan():
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 210, 8, requires_grad=True) for _ in range(3))
    for mask in (chunks(32, before=1) & causal(), block_diffusion(105, 15)):
        assert mask.spans(Grid.of(query, key)).runs <= 2
        outputs = [regard.attend(query, key, value, mask=mask, backend=name) for name in ("cpu", "reference")]
        torch.testing.assert_close(*outputs)
        torch.testing.assert_close(*(torch.autograd.grad(each.square().sum(), (query, key, value)) for each in outputs))
    spoilt = torch.cat([key[:, :, :64], torch.full_like(key[:, :, 64:], torch.nan)], dim=2)
    first = regard.attend(query[:, :, :64], spoilt, spoilt, mask=chunks(32, before=1, align="start"), backend="cpu")
    assert first.isfinite().all()


def test_chunked_attention_is_that_of_llama_4():
    masking = pytest.importorskip("transformers").masking_utils
    for size, padding in itertools.product((1, 3, 8), ([0, 0], [0, 4])):
        left = torch.tensor(padding)
        rule = masking.chunked_causal_mask_function(size, left)
        index = torch.arange(2)[:, None, None, None], 0, torch.arange(13)[:, None], torch.arange(13)
        expected = rule(*index).expand(2, 1, 13, 13)
        # Chunks of a row that is padded on the left begin behind its padding.
        shifted = documents((torch.arange(13) - left[:, None]).div(size, rounding_mode="floor").clamp(min=-1))
        mask = causal() & (shifted if any(padding) else chunks(size))
        rows = left[:, None, None, None] <= torch.arange(13)[:, None]
        assert torch.equal(mask.dense(Grid.whole(2, 1, 13, 13)), expected & rows)


def test_chunks_are_those_of_streaming_speech_encoders():
    pytest.importorskip("transformers")
    from transformers.models.nemotron_asr_streaming.modeling_nemotron_asr_streaming import chunked_limited_mask_function
    from transformers.models.seamless_m4t_v2 import SeamlessM4Tv2Config
    from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import SeamlessM4Tv2ConformerEncoder

    grid, position = Grid.whole(1, 1, 17, 17), torch.arange(17)
    for size, before in ((3, 0), (4, 2), (5, -1)):
        encoder = SeamlessM4Tv2ConformerEncoder.__new__(SeamlessM4Tv2ConformerEncoder)
        torch.nn.Module.__init__(encoder)
        encoder.config = SeamlessM4Tv2Config(speech_encoder_chunk_size=size, speech_encoder_left_chunk_num=before)
        expected = encoder._apply_chunk_attention(None, torch.zeros(1, 17, 2))
        mask = chunks(size, None if before < 0 else before)
        assert torch.equal(mask.dense(grid), expected)
        rule = chunked_limited_mask_function(before * size, size - 1)
        assert torch.equal(mask.dense(grid)[0, 0], rule(0, 0, position[:, None], position))


def test_block_diffusion_sees_noised_blocks_and_earlier_clean_ones():
    for length, block in ((12, 3), (12, 12), (5, 1)):

        def sees(i: int, j: int, n: int = length, size: int = block) -> bool:
            of_query, of_key = i % n // size, j % n // size
            if i < n:  # noised
                return of_query == of_key if j < n else of_key < of_query
            return j >= n and of_key <= of_query

        grid = Grid.whole(1, 1, 2 * length, 2 * length)
        mask = block_diffusion(length, block)
        expected = torch.tensor([[sees(i, j) for j in range(2 * length)] for i in range(2 * length)])
        assert torch.equal(mask.dense(grid)[0, 0], expected)
        assert torch.equal(dense_spans(mask.spans(grid), grid)[0, 0], expected)


def test_chunks_refuse_what_is_no_chunk():
    for make, says in (
        (lambda: chunks(0), "size must be at least 1; it is 0"),
        (lambda: chunks(2 * EDGE), "size must be at most"),
        (lambda: chunks(2, before=-1), "before must be at least 0"),
        (
            lambda: block_diffusion(10, 3),
            "block must divide length, 10, so that both halves have whole blocks; it is 3",
        ),
    ):
        with pytest.raises(ArgumentError, match=says):
            make()
    with pytest.raises(KindError, match="size must be an integer"):
        chunks(2.0)
    assert [repr(mask) for mask in (chunks(4), chunks(4, None), chunks(4, align="start"))] == [
        "chunks(4)", "chunks(4, before=None, after=0)", "chunks(4, align='start')"
    ]  # fmt: skip
