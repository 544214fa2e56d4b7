"""Agreement with leave-one-out: exact on a model whose output is a sum of its tokens; the report, and its texts."""

import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from regard.errors import ArgumentError, DataError, MissingPartError, UnknownNameError
from regard.watching import Faithfulness, faithfulness
from regard.watching.faithfulness_page import PAPERS
from regard.watching.rank_correlation import kendall, spearman

stats = pytest.importorskip("scipy.stats")


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=25)


@given(PAIRS)
@example([(2, 1), (1, 0), (2, 2), (1, 0), (2, 1)])  # above random orders only if ties count in the variance
def test_rank_correlations_are_those_of_scipy(pairs):
    first, second = np.array(pairs, np.float64).T
    tau = stats.kendalltau(first, second, method="asymptotic", alternative="greater")
    got = kendall(first, second)
    if len({*first}) == 1 or len({*second}) == 1:
        assert np.isnan(got.tau)
        assert np.isnan(spearman(first, second))
        return
    assert got.tau == pytest.approx(tau.statistic, abs=1e-12)
    assert got.is_above_random == (tau.pvalue < 0.05)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


AMOUNTS = torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0], dtype=torch.float64)


class Mean(nn.Module):
    """The mean of all values, as uniform attention."""

    def __init__(self):
        super().__init__()
        self.output = nn.Linear(2, 1, bias=False).double()
        nn.init.ones_(self.output.weight)

    def forward(self, value):
        uniform = torch.zeros(len(value), 1, 1, 2, dtype=value.dtype)
        mean = F.scaled_dot_product_attention(uniform, torch.zeros_like(value), value)
        return self.output(mean.transpose(1, 2).flatten(2))[:, 0, 0]


class Sum(nn.Module):
    """The sum of an amount of each token: every deletion changes it by exactly that amount."""

    def __init__(self, amounts=AMOUNTS):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(len(amounts), 2).double(), Mean()
        with torch.no_grad():
            self.embedding.weight.copy_(torch.stack((amounts, torch.zeros_like(amounts)), 1))

    def forward(self, ids):
        return self.attention(self.embedding(ids)[:, None]) * ids.shape[1]


def total(output):
    return output


SUMS = {"metric": total, "progress": False}
TEXTS = [[0, 6, 3], [5, 1, 4, 2, 0], [1, 2, 3, 4, 5, 6, 0]]


def test_methods_agree_wholly_where_the_output_is_a_sum():
    methods = ["norms", "gradient_weight", "relevance", "gradient_input", "weights"]
    result = faithfulness(Sum(), TEXTS, methods=methods, fractions=(0.25, 0.5), **SUMS)
    amounts = [sorted(AMOUNTS[text].tolist(), reverse=True) for text in TEXTS]
    # The counts of deleted tokens, rounded, at least one.
    counts = [[1, 2], [1, 2], [2, 4]]
    deleted = [[sum(one[count:]) for count in of_text] for one, of_text in zip(amounts, counts, strict=True)]
    kept = [[sum(one[:count]) for count in of_text] for one, of_text in zip(amounts, counts, strict=True)]
    for name in (*methods[:4], "leave_one_out"):
        scores = result[name]
        assert scores.kendall.tolist() == pytest.approx([1.0] * 3)
        assert scores.spearman.tolist() == pytest.approx([1.0] * 3)
        assert scores.is_top.tolist() == [1.0] * 3
        np.testing.assert_allclose(scores.deletion, deleted)
        np.testing.assert_allclose(scores.insertion, kept)
        whole = np.array([[sum(one)] for one in amounts])
        np.testing.assert_allclose(scores.comprehensiveness, (whole - deleted).mean(1))
        np.testing.assert_allclose(scores.sufficiency, (whole - kept).mean(1))
    assert np.isnan(result["weights"].kendall).all(), "uniform weights have no order"
    np.testing.assert_allclose(result.texts[0].importance["leave_one_out"], AMOUNTS[TEXTS[0]])
    assert "are the same for all tokens" in str(faithfulness(Sum(), TEXTS, methods=["weights"], **SUMS))


def test_magnitudes_are_compared_unless_signs_are_asked_for():
    model = Sum(AMOUNTS * torch.tensor([1, -1, 1, -1, 1, -1, 1]))
    for signed, expected in ((False, 1.0), (True, -1.0)):
        result = faithfulness(model, [[0, 1, 2]], methods=["norms"], signed=signed, **SUMS)
        reference = [0.5, -1.0, 2.0]
        truth = stats.kendalltau([0.5, 1.0, 2.0], reference if signed else np.abs(reference)).statistic
        assert result["norms"].kendall.tolist() == pytest.approx([truth])
        assert (truth == 1.0) == (expected == 1.0)


def test_special_tokens_are_never_left_out():
    asked = []

    class Noting(Sum):
        def forward(self, ids):
            asked.extend(ids.tolist())
            return super().forward(ids)

    result = faithfulness(Noting(), [[6, 1, 2, 3, 6], [6, 1, 6]], special=[6], methods=["gradient_input"], **SUMS)
    assert all(text[0] == text[-1] == 6 for text in asked)
    assert result.texts[0].counted == (False, True, True, True, False)
    assert (len(result.texts), result.short) == (1, 1)
    assert "1 text with fewer than two tokens could not be compared" in str(result)


class Labels(Sum):
    def forward(self, ids):
        logit = super().forward(ids) / 20 - 1
        return torch.stack((-logit, logit), 1)


def test_the_number_is_the_probability_of_the_predicted_label():
    result = faithfulness(Labels(), [[0, 1], [5, 6]], methods=["gradient_input"], progress=False)
    for text, ids in zip(result.texts, ([0, 1], [5, 6]), strict=True):
        logit = AMOUNTS[ids].sum().item() / 20 - 1
        assert text.number == pytest.approx(1 / (1 + np.exp(-2 * abs(logit))))
    other = faithfulness(Labels(), [[0, 1], [5, 6]], metric=[1, 0], methods=["gradient_input"], progress=False)
    assert [text.number for text in other.texts] == pytest.approx([1 - text.number for text in result.texts])


def test_an_interruption_keeps_the_texts_that_were_done():
    def texts():
        yield from TEXTS[:2]
        raise KeyboardInterrupt

    result = faithfulness(Sum(), texts(), methods=["norms"], **SUMS)
    assert len(result.texts) == 2
    assert "interrupted" in str(result)


def test_a_missing_package_leaves_its_method_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    result = faithfulness(Sum(), TEXTS, **SUMS)
    assert list(result.missing) == ["integrated_gradients"]
    assert "regard[attribution]" in str(result)
    with pytest.raises(UnknownNameError, match="norms"):
        result["integrated_gradients"]
    with pytest.raises(MissingPartError):
        faithfulness(Sum(), TEXTS, methods=["integrated_gradients"], **SUMS)


def test_bad_arguments_of_faithfulness_are_clear():
    with pytest.raises(UnknownNameError, match="rollout"):
        faithfulness(Sum(), TEXTS, methods=["rolout"], **SUMS)
    with pytest.raises(ArgumentError, match="fractions"):
        faithfulness(Sum(), TEXTS, fractions=(0.5, 1.0), **SUMS)
    with pytest.raises(ArgumentError, match="two tokens"):
        faithfulness(Sum(), [[1], []], methods=["norms"], **SUMS)
    with pytest.raises(DataError, match="text 1 of 2 tokens"):
        faithfulness(Sum(), [[1, 2], [1, 99]], methods=["norms"], **SUMS)
    with pytest.raises(ArgumentError, match="labels must"):
        faithfulness(Sum(), TEXTS, methods=["norms"], labels=lambda ids: ["one"], **SUMS)
    for count, texts in ((2, TEXTS), (len(TEXTS) + 1, TEXTS), (2, iter(TEXTS))):
        with pytest.raises(ArgumentError, match=f"metric must have a label for each text; it has {count}"):
            faithfulness(Labels(), texts, metric=[0] * count, methods=["norms"], progress=False)


class Texts(HTMLParser):
    """The texts of a page, and its tags."""

    def __init__(self):
        super().__init__()
        self.texts, self.tags, self.attributes = [], set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.texts.append(data)


HOSTILE = ["<script>alert(1)</script>", "'><img src=x onerror=alert(1)>", "&amp;", "\u202ereversed", "", "\x00", "日本"]


def test_the_report_holds_sentences_papers_and_hostile_texts(tmp_path):
    methods = ["norms", "gradient_input"]
    result = faithfulness(Sum(), TEXTS, methods=methods, labels=lambda ids: [HOSTILE[token] for token in ids], **SUMS)
    path = result.save(tmp_path / "report.html")
    page, parser = path.read_text(encoding="utf-8"), Texts()
    parser.feed(page)
    whole = "".join(parser.texts)
    for sentence in result.sentences():
        assert sentence in whole
    for papers in PAPERS.values():
        assert all(paper in whole for paper in papers)
    assert "alert(1)" in whole
    assert "日本" in whole
    assert {"script", "img", "a"}.isdisjoint(parser.tags)
    assert not {"style", "onerror", "onload"} & parser.attributes
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|nan", page)
    assert "<iframe" in result._repr_html_()
    assert isinstance(result, Faithfulness)
