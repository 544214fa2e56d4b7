"""A Hugging Face model in a folder on this machine, as a model of the page."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Problem, Readings
from regard.attention.execution import RecordedCall
from regard.errors import ArgumentError, RunError
from regard.explanations.model_attention import ModelAttention
from regard.files.regular import LARGEST_DATA, require_regular
from regard.page.examples import sentences_for
from regard.page.pretrained_folder import check_pretrained, facts_of, head_of, name_of
from regard.page.reading import MOST_WEIGHTS, Answer, Reading, ServedModel, check_weights, rest_of
from regard.records import AttentionRecord, Document, StepsRecord, TokenAxis
from regard.tasks.trained_run import on_device
from regard.watching import Watch, watch
from regard.watching.intercepted_call import InterceptedCall
from regard.watching.owners import Owner
from regard.watching.token_ids import token_axis

MOST_NEW_TOKENS = 64
"""The most tokens that an encoder-decoder generates."""

MOST_CONTINUED_TOKENS = 12
"""The most tokens that a model of the next token writes after a text, for each text that is typed."""

MOST_TOKENS = 1024
"""The most tokens of a text if the model states no limit."""

SHOWN_CHOICES = 8
"""How many choices of a vocabulary are shown."""


class PretrainedModel(ServedModel):
    """A model that `save_pretrained` wrote, with its tokenizer. Nothing is downloaded, and no code of the folder runs.
    Raises RunError if transformers cannot load them, or is not installed, or `check_pretrained` refuses the folder."""

    kind = "pretrained"

    def __init__(self, path: Path, device: str = "cpu"):
        try:
            import transformers
        except ImportError as error:
            raise RunError(
                f"{path} is a Hugging Face model, and transformers is not installed; "
                "it comes with: pip install 'regard[transformers]'"
            ) from error
        check_pretrained(path)
        local = {"local_files_only": True, "trust_remote_code": False}
        with _quiet(transformers), _one_line(path):
            for file in path.iterdir():  # transformers opens them by their names
                if not file.is_dir():
                    require_regular(file, LARGEST_DATA)
            config = transformers.AutoConfig.from_pretrained(path, **local)
            loader, self.task, self.placeholder = head_of(config.architectures)
            self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(path, **local)
            self.model: Any = getattr(transformers, loader).from_pretrained(path, use_safetensors=True, **local).eval()
        self.model = on_device(self.model, device)
        self.config: Any = self.model.config
        self.device = device
        self.path = str(path)
        self.name = name_of(path)
        layers, heads = (getattr(self.config, name, None) for name in ("num_hidden_layers", "num_attention_heads"))
        self.facts = facts_of(type(self.model).__name__, layers, heads)
        self.most_tokens = self._most_tokens()
        self.examples = sentences_for(self.task, self.tokenizer.mask_token)

    def _read(self, text: str) -> Reading:
        encoded = self.tokenizer(text, return_tensors="pt")
        ids = encoded["input_ids"]
        self._check_length(ids.shape[1])
        inputs = {name: value.to(self.device) for name, value in encoded.items()}
        if not ids.shape[1]:
            return Reading(Answer(self.task), Document(self.name, (), texts=(("input", text),)))
        axis = token_axis(self.tokenizer, ids[0].tolist(), text)
        written: TokenAxis | None = None
        tokens: list[int] = []
        with torch.inference_mode():
            if self.config.is_encoder_decoder:
                start, tokens = self._generate(inputs)
                inputs["decoder_input_ids"] = start
                written = token_axis(self.tokenizer, start[0].tolist())
            elif self.task == "next token":
                tokens = self._continue(inputs)
                if tokens:
                    inputs = _lengthened(inputs, tokens)
                    axis = _joined(axis, token_axis(self.tokenizer, tokens))
            with watch(self.model, read=Readings(weights=True)) as seen:
                output = self.model(**inputs)
        both = (axis,) if written is None else (written, axis)
        records = tuple(seen.records(*both))
        if self.config.is_encoder_decoder:
            answer = Answer("Output", self.tokenizer.decode(tokens, skip_special_tokens=True))
        else:
            answer = self._answer(output, ids[0])
            if tokens:
                continuation = self.tokenizer.decode(tokens, skip_special_tokens=True)
                answer = replace(answer, label="Continuation", text=continuation, choice="Next token")
        texts = (("input", text), *((("output", answer.text),) if answer.text else ()))
        document = Document(self.name, records, texts=texts)
        crossing = [index for index, record in enumerate(records) if record.kind == "cross"]
        return Reading(
            answer,
            document,
            lambda record, head: self._steps(inputs, records[record], head),
            first=crossing[-1] if crossing else None,
        )

    def _steps(self, inputs: dict[str, Tensor], record: AttentionRecord, head: int) -> StepsRecord:
        """Returns the worked calculation of a head: the model runs again to record the inputs of its attention."""
        with torch.inference_mode(), _ProblemWatch(self.model) as seen:
            self.model(**inputs)
        for call, problem in zip(seen.calls, seen.problems, strict=True):
            if problem is not None and (call.name, call.layer, call.kind) == (record.name, record.layer, record.kind):
                queries, keys = record.queries, record.keys
                assert isinstance(queries, TokenAxis)
                assert isinstance(keys, TokenAxis)
                assert record.weights is not None
                recorded = RecordedCall(problem, torch.from_numpy(record.weights)[None])
                one = ModelAttention(record.name, record.layer, record.kind, queries, keys, [recorded])
                return one.steps(head)
        raise ArgumentError(f"the queries and keys of {record.name} are not known: the model shows its weights alone")

    def _generate(self, inputs: dict[str, Tensor]) -> tuple[Tensor, list[int]]:
        """Returns the input of the decoder that writes the text, and the text's tokens."""
        tokens = self.model.generate(**inputs, max_new_tokens=MOST_NEW_TOKENS, do_sample=False)
        # No step reads the last token.
        return (tokens[:, :-1] if tokens.shape[1] > 1 else tokens), tokens[0].tolist()

    def _continue(self, inputs: dict[str, Tensor]) -> list[int]:
        """Returns the most likely tokens after a text; [] if the model has no room for them."""
        length = inputs["input_ids"].shape[1]
        room = min(MOST_CONTINUED_TOKENS, self._most_tokens() - length)
        if room < 1 or self._weights(length + room) > MOST_WEIGHTS or not self.model.can_generate():
            return []
        end = self.model.generation_config.eos_token_id
        padding = end[0] if isinstance(end, list) else end
        sequences = self.model.generate(
            **inputs,
            max_new_tokens=room,
            do_sample=False,
            num_beams=1,
            pad_token_id=self.tokenizer.pad_token_id or padding,
        )
        return sequences[0, length:].tolist()

    def _weights(self, tokens: int) -> int:
        """Returns the number of weights that all layers and heads have for a text of so many tokens."""
        layers, heads = getattr(self.config, "num_hidden_layers", 1), getattr(self.config, "num_attention_heads", 1)
        return layers * heads * tokens**2

    def _answer(self, output: Any, ids: Tensor) -> Answer:
        logits = output.get("logits")
        match self.task:
            case "classify":
                names = self.config.id2label
                row = logits[0].float()
                if len(row) == 1:
                    return Answer("Score", f"{float(row[0]):.4f}")
                several = self.config.problem_type == "multi_label_classification"
                probabilities = row.sigmoid() if several else row.softmax(-1)
                order = probabilities.argsort(descending=True).tolist()[: 2 * SHOWN_CHOICES]
                ranked = tuple((str(names[index]), float(probabilities[index])) for index in order)
                if several:  # their probabilities do not sum to 1
                    return Answer("Labels", ranked=ranked)
                return Answer("Label", ranked[0][0], ranked, rest=rest_of(ranked))
            case "next token":
                ranked = self._likely(logits[0, len(ids) - 1])
                return Answer("Next token", ranked=ranked, rest=rest_of(ranked))
            case "fill in":
                masks = (ids == self.tokenizer.mask_token_id).nonzero()[:, 0].tolist()
                if not masks:
                    mask = self.tokenizer.mask_token
                    return Answer("Filled in", notes=(f"Write {mask} for a word that the model fills in.",))
                note = (f"The first of {len(masks)} masked words is filled in.",) if len(masks) > 1 else ()
                ranked = self._likely(logits[0, masks[0]])
                return Answer("Filled in", ranked=ranked, notes=note, rest=rest_of(ranked))
        return Answer("Output", notes=("This model has no output of its own; its attention is shown.",))

    def _likely(self, logits: Tensor) -> tuple[tuple[str, float], ...]:
        probabilities = logits.float().softmax(-1)
        top = probabilities.topk(min(SHOWN_CHOICES, len(probabilities)))
        labels = [self.tokenizer.decode([token]) for token in top.indices]
        return tuple(zip(labels, top.values.tolist(), strict=True))

    def _most_tokens(self) -> int:
        """Returns the most tokens of a text that the model reads: its own limit, or `MOST_TOKENS` if it states none."""
        names = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
        limits = [getattr(self.config, name, None) for name in names] + [self.tokenizer.model_max_length]
        stated = [limit for limit in limits if isinstance(limit, int) and 0 < limit < 2**40]
        return min(stated, default=MOST_TOKENS)

    def _check_length(self, tokens: int) -> None:
        """Raises ArgumentError if a text has more tokens than the model can read."""
        limit = self._most_tokens()
        if tokens > limit:
            raise ArgumentError(f"the text has {tokens:,} tokens, and {self.name} reads at most {limit:,}; shorten it")
        check_weights(tokens, self._weights(tokens))


def _lengthened(inputs: dict[str, Tensor], tokens: list[int]) -> dict[str, Tensor]:
    """Returns the inputs of a text with more tokens; each new token repeats the values of the last one."""
    longer = {name: torch.cat([one, one[:, -1:].expand(-1, len(tokens))], 1) for name, one in inputs.items()}
    longer["input_ids"][:, -len(tokens) :] = torch.tensor(tokens, device=longer["input_ids"].device)
    return longer


def _joined(prompt: TokenAxis, written: TokenAxis) -> TokenAxis:
    """Returns the axis of a text and of what the model wrote after it."""
    length = len(prompt)
    words = written.words or [range(position, position + 1) for position in range(len(written))]
    later = tuple(range(word.start + length, word.stop + length) for word in words)
    return TokenAxis(
        prompt.tokens + written.tokens,
        prompt.special + written.special,
        prompt.words + later if prompt.words else (),
        generated=length,
    )


class _ProblemWatch(Watch):
    """A context like that of `regard.watch` that takes no reading and keeps the problem of each of ``calls``; None if
    only its weights are known."""

    def __init__(self, model: nn.Module):
        super().__init__(model, Readings(), None, None, keep=False, norms=False, outputs=False, inputs=False)
        self.problems: list[Problem | None] = []

    def take(self, owner: Owner, read: Callable[[Owner], InterceptedCall]) -> None:
        intercepted: list[InterceptedCall] = []

        def keep(owner: Owner) -> InterceptedCall:
            intercepted.append(read(owner))
            return intercepted[-1]

        before = len(self.calls)
        super().take(owner, keep)
        if len(self.calls) > before:
            self.problems.append(intercepted[-1].problem)


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Returns a context without progress bars and warnings of transformers, and without requests to a hub."""
    import huggingface_hub.constants

    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    """Returns a context that turns every error of transformers into one line."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise RunError(f"{path} cannot be loaded by transformers: {reason[:300]}") from error
