"""Tiny models of Hugging Face in folders, as `save_pretrained` writes them."""

import pytest

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", ".", "unlike", "##ly", "café"]
TEXT = "The quick brown fox jumps over the lazy dog."
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}


@pytest.fixture(scope="module")
def tokenizer():
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend = Tokenizer(models.WordPiece({word: id for id, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=32,
    )  # fmt: skip


def tiny(kind):
    transformers = pytest.importorskip("transformers")
    vocabulary = 5 + len(WORDS)
    bert = transformers.BertConfig(
        vocab_size=vocabulary, max_position_embeddings=32, id2label={0: "bad", 1: "fair", 2: "good"},
        label2id={"bad": 0, "fair": 1, "good": 2}, **SIZES,
    )  # fmt: skip
    if kind == "classify":
        return transformers.BertForSequenceClassification(bert)
    if kind == "fill in":
        return transformers.BertForMaskedLM(bert)
    if kind == "encode":
        return transformers.BertModel(bert)
    if kind == "next token":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=vocabulary, n_positions=32, n_embd=16, n_layer=2, n_head=2)
        )
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=vocabulary,
            d_model=16,
            d_kv=8,
            d_ff=20,
            num_layers=2,
            num_heads=2,
            decoder_start_token_id=0,
            eos_token_id=3,
            pad_token_id=0,
        )
    )


@pytest.fixture(scope="module")
def folder_of(tokenizer, tmp_path_factory):
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("pretrained") / kind.replace(" ", "-")
            tiny(kind).save_pretrained(made[kind])
            tokenizer.save_pretrained(made[kind])
        return made[kind]

    return make
