"""Programs of every model: they are the model, their states make a search, and they load without regard."""

import subprocess
import sys

import pytest
import torch

from module_cases import DIM, HEADS, MODELS, RECURRENT, TRANSFORMER, WORDS
from regard import models
from regard.errors import ArgumentError
from regard.exports import torch_programs
from regard.exports.programs import programs_of
from regard.models.search import greedy
from regard.models.text_predictor import TextPredictor
from regard.models.vision.segmenter import Segmenter, SegmenterConfig


def recurrent(**options):
    return models.RecurrentTranslator(models.TranslatorConfig(WORDS, WORDS, **RECURRENT, **options))


def language(**options):
    sizes = {"hidden": DIM, "heads": HEADS, "feedforward": 17, "layers": 2, "context": 11, "dropout": 0.0}
    return models.LanguageModel(models.LanguageModelConfig(WORDS, **{**sizes, **options}))


MORE = {
    "luong": lambda: recurrent(attention="luong", architecture="gru"),
    "local-m": lambda: recurrent(attention="luong", scope="local-m", window=2),
    "local-p": lambda: recurrent(attention="luong", scope="local-p", window=2),
    "hard": lambda: recurrent(attention="hard"),
    "chunkwise": lambda: recurrent(attention="chunkwise", chunk_width=3),
    "none": lambda: recurrent(attention="none"),
    "coverage": lambda: models.RecurrentPointerGenerator(
        models.PointerConfig(WORDS, WORDS, coverage=True, **RECURRENT)
    ),
    "alibi": lambda: language(position="alibi", kv_heads=1),
    "t5": lambda: language(position="t5", normalizer="entmax15"),
}


def model_of(name):
    torch.manual_seed(1)
    return ({**MODELS, **MORE}[name])().eval()


TEXTS = [name for name in {**MODELS, **MORE} if isinstance(model_of(name), TextPredictor)]
OTHERS = [name for name in {**MODELS, **MORE} if name not in TEXTS]


@pytest.mark.parametrize("name", TEXTS)
@torch.no_grad()
def test_an_encoder_and_steps_are_a_greedy_search(name):
    model = model_of(name)
    encoder, step = programs_of(model)
    source = encoder.example({**encoder.sizes, "batch": 2})
    state = dict(zip(encoder.outputs, encoder.run(source), strict=True))
    names = [one.name for one in step.inputs[1:]]
    assert list(state) == names
    encoded = model.encode(*source)
    forbidden = model.config.pad, 3
    rows = greedy(
        model, encoded, bos=model.config.bos, eos=model.config.eos, forbidden=forbidden, max_length=4
    )  # fmt: skip
    tokens, chosen = torch.full((2,), model.config.bos), []
    for _ in range(4):
        results = dict(zip(step.outputs, step.run([tokens, *(state[name] for name in names)]), strict=True))
        state |= {name.removeprefix("next_"): tensor for name, tensor in results.items() if name.startswith("next_")}
        scores = results["log_probabilities"].clone()
        scores[:, [model.config.bos, *forbidden]] = -torch.inf
        tokens = scores.argmax(-1)
        chosen.append(tokens)
    for row, hypothesis in enumerate(rows):
        mine = [int(step[row]) for step in chosen]
        assert mine[: len(hypothesis.tokens)] == hypothesis.tokens


@pytest.mark.parametrize(("name", "earlier"), [("chunkwise", "stops"), ("coverage", "coverage")])
def test_earlier_weights_are_inputs_of_programs_by_their_own_names(name, earlier):
    step = programs_of(model_of(name))[1]
    assert {"previous_weights", "stops", "coverage"} & {one.name for one in step.inputs} == {earlier}


@pytest.mark.parametrize("name", OTHERS)
@torch.no_grad()
def test_inputs_and_outputs_are_as_they_are_described(name):
    for program in programs_of(model_of(name)):
        inputs = program.example(program.sizes)
        assert len(program.run(inputs)) == len(program.outputs)
        for one, tensor in zip(program.inputs, inputs, strict=True):
            sizes = [program.sizes.get(axis, axis) for axis in one.axes]
            assert list(tensor.shape) == sizes, one.name


@torch.no_grad()
def test_steps_of_a_language_model_are_its_logits():
    model = model_of("alibi")
    whole, step = programs_of(model)
    (tokens,) = whole.example({"batch": 2, "length": 5})
    past = [tensor[:, :, :0] for tensor in step.example({"batch": 2, "past": 1})[1:]]
    for number in range(5):
        log_probabilities, *past = step.run([tokens[:, number : number + 1], *past])
    expected = torch.log_softmax(model(tokens)[:, -1], -1)
    torch.testing.assert_close(log_probabilities, expected, rtol=1e-4, atol=1e-5)


SCRIPT = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "regard":
            raise ImportError("regard is not installed")

sys.meta_path.insert(0, Forbidden())
import torch

for path, cases in torch.load(sys.argv[1]).items():
    program = torch.export.load(path).module()
    for inputs, expected in cases:
        for got, right in zip(program(*inputs), expected, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)
assert "regard" not in sys.modules
"""


EXPORTED = (("TextClassifier gru", "model"), ("TransformerTranslator", "step"), ("hard", "step"))


def test_programs_load_without_regard(tmp_path):
    """For batches and lengths of any size, one and none included; a recurrent layer has any number of steps."""
    saved = {}
    for name, part in EXPORTED:
        program = next(one for one in programs_of(model_of(name)) if one.name == part)
        recorded = torch_programs.traced(program)
        assert part != "step" or not [
            name for name in recorded.state_dict if ".encoder." in name
        ]  # which it never reads
        path = tmp_path / f"{name.replace(' ', '-')}.pt2"
        torch_programs.save(recorded, path)
        assert torch_programs.largest_difference(program, path) < 1e-5
        ones = dict.fromkeys(program.sizes, 1) | ({"past": 0} if "past" in program.sizes else {})
        inputs = [program.example({**program.sizes, "batch": 5}), program.example(ones)]
        saved[str(path)] = [(one, program.run(one)) for one in inputs]
        assert b"site-packages" not in path.read_bytes()
    torch.save(saved, tmp_path / "cases.pt")
    subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT, tmp_path / "cases.pt"], check=True)


def saved(program, path):
    torch_programs.save(torch_programs.traced(program), path)
    return torch_programs.largest_difference(program, path)


def test_a_segmenter_takes_images_whose_sides_are_multiples_of_its_stride(tmp_path):
    plain = {"levels": 2, "blocks": 0, "gate": "none", "attention": "none", "fusion": "sum"}
    model = Segmenter(SegmenterConfig(classes=5, channels=3, decoder_channels=4, **plain))
    (program,) = programs_of(model.eval())
    torch_programs.save(torch_programs.traced(program), tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert {"batch": 2, "height": 8, "width": 12} in program.checked
    for height, width in ((32, 32), (33, 32), (32, 33), (37, 41)):
        images = torch.rand(2, 3, height, width)
        torch.testing.assert_close(loaded(images), program.run([images]), rtol=1e-4, atol=1e-5)


def test_examples_keep_to_the_largest_size(tmp_path):
    """That of learned positions, also in the longer inputs of a quantization; none is too short to be exported."""
    for context in (4, 7, 8):
        model = language(position="learned", context=context, layers=1)
        for program in programs_of(model.eval()):
            (axis, limit), *_ = program.limits.items()
            place = {"length": (0, 1), "past": (1, 2)}[axis]
            for inputs in (*torch_programs.checks(program), *(program.other_example(more) for more in range(8))):
                assert inputs[place[0]].shape[place[1]] <= limit
                program.run(inputs)
            if context == 4 and program.name == "step":
                assert saved(program, tmp_path / "program.pt2") < 1e-5
    with pytest.raises(ArgumentError, match=r"'length' has at most 2 entries.*larger context"):
        torch_programs.traced(programs_of(language(position="learned", context=2).eval())[0])
    translator = models.TransformerTranslator(
        models.TranslatorConfig(WORDS, WORDS, **TRANSFORMER, position="learned", max_length=8)
    )
    for program in programs_of(translator.eval()):
        for inputs in (*torch_programs.checks(program), *(program.other_example(more) for more in range(8))):
            program.run(inputs)


def test_a_check_has_a_batch_in_which_every_row_is_padded():
    for name, part in (("TextClassifier gru", 0), ("TransformerTranslator", 0), ("TransformerTranscriber", 0)):
        program = programs_of(model_of(name))[part]
        assert any(lengths.max() < inputs.shape[1] for inputs, lengths in torch_programs.checks(program))


@pytest.mark.parametrize("name", [*MODELS, *MORE])
def test_every_program_is_traced_in_a_full_run(name, tmp_path, request):
    if not request.config.getoption("full"):
        pytest.skip("to trace every program takes minutes; --full does it")
    for program in programs_of(model_of(name)):
        assert saved(program, tmp_path / f"{program.name}.pt2") < 1e-4, program.name


def test_models_without_a_program_say_so():
    with pytest.raises(ValueError, match="Linear cannot be exported"):
        programs_of(torch.nn.Linear(2, 3))
