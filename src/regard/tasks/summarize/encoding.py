"""Articles and summaries as ids: each article has the extended vocabulary of its own words."""

import logging
from typing import TYPE_CHECKING

from regard.data.cache import fingerprint
from regard.data.text.batches import EncodedBlock, encoded_table
from regard.data.text.extended_vocabulary import ExtendedVocabulary
from regard.data.text.tokenizers import Tokenizer

if TYPE_CHECKING:
    import datasets

log = logging.getLogger("regard")


def encode_articles(
    dataset: "datasets.Dataset",
    tokenizer: Tokenizer,
    *,
    copy: bool,
    max_length: int,
    max_summary: int,
    cut_summaries: bool = False,
) -> "datasets.Dataset":
    """Encode every article and its summary; the ids are memory-mapped.

    Args:
        dataset: columns ``source`` (articles) and ``target`` (summaries).
        tokenizer: encodes both.
        copy: whether unknown words get the ids of the article's `ExtendedVocabulary`, also in the summary; else they
            are ``unk``.
        max_length: largest number of tokens of an article; the rest is cut off.
        max_summary: largest number of tokens of a summary.
        cut_summaries: whether a longer summary is cut, for evaluation; else its article is left out.

    Returns:
        a table as `regard.data.text.batches.encode_pairs` gives it.

    Raises:
        DataError: no article is left.
    """

    def encode(block: dict[str, list[str]]) -> EncodedBlock:
        articles = tokenizer.encode_batch(block["source"])
        summaries = tokenizer.encode_batch(block["target"])
        kept = [place for place, ids in enumerate(summaries) if cut_summaries or len(ids) <= max_summary]
        counts = {
            "overlong": sum(len(articles[place]) > max_length for place in kept),
            "summaries": sum(len(ids) > max_summary for ids in summaries),
        }
        source, target = [], []
        for place in kept:
            article, summary = articles[place][:max_length], summaries[place][:max_summary]
            if copy:
                text = block["source"][place]
                extended = ExtendedVocabulary.of(tokenizer, text, article)
                article = extended.encode(text, article)
                summary = extended.encode(block["target"][place], summary)
            source.append(article)
            target.append(summary)
        return EncodedBlock(source, target, kept, counts)

    limits = max_length, max_summary, cut_summaries
    # datasets documents `_fingerprint` as the key of a table's content; there is no public attribute for it.
    key = fingerprint("articles", dataset._fingerprint, tokenizer.fingerprint, copy, *limits)
    refused = f"none of {len(dataset)} summaries has at most {max_summary} tokens; raise --max-summary"
    table, counted = encoded_table(key, dataset, encode, refused)
    if counted["overlong"]:
        log.warning("cut %d of %d articles with more than %d tokens", counted["overlong"], len(dataset), max_length)
    if counted["summaries"]:
        done = "cut" if cut_summaries else "left out"
        log.warning(
            "%s %d of %d summaries with more than %d tokens", done, counted["summaries"], len(dataset), max_summary
        )
    return table
