"""The search of the Chinese site: jieba cuts the words of pages, and the words of the index cut those of a query."""

from sphinx.application import Sphinx
from sphinx.search.zh import SearchChinese


class SearchOfWords(SearchChinese):
    """Sphinx names a stemmer of the browser after the language, and has none that is called Chinese."""

    language_name = "English"
    js_splitter_code = r"""
var splitQuery = (query) => {
  const known = (word) => Object.hasOwn(Search._index.terms, word) || Object.hasOwn(Search._index.titleterms, word);
  const words = [];
  for (const run of query.toLowerCase().match(/\p{Script=Han}+|[^\p{Script=Han}\P{L}]+[\p{N}_]*|[\p{N}_]+/gu) ?? []) {
    const found = [];
    const isHan = /\p{Script=Han}/u.test(run);
    for (let start = 0, end = run.length; isHan && start < run.length; start = end, end = run.length) {
      while (end > start + 1 && !known(run.slice(start, end))) end--;
      if (end > start + 1) found.push(run.slice(start, end));
    }
    words.push(...(found.length ? found : [run]));
  }
  return words;
};
"""


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_search_language(SearchOfWords)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
