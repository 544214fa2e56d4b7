"""A page and its translation share the outputs of their cells: prompts and captions may differ, the code does not."""

from collections.abc import Iterable

from jupyter_cache.cache.main import JupyterCacheBase
from myst_nb.core.execute import cache as execution
from nbformat import NotebookNode
from sphinx.application import Sphinx


class SharedCells(JupyterCacheBase):
    """A cache in which the code and the tags of the cells are the key; other metadata is that of the page."""

    def create_hashed_notebook(
        self,
        nb: NotebookNode,
        nb_metadata: Iterable[str] | None = ("kernelspec",),
        cell_metadata: Iterable[str] | None = ("tags",),
    ):
        return super().create_hashed_notebook(nb, nb_metadata, cell_metadata)

    def truncate_caches(self):
        """Deletes nothing: records that another process adds meanwhile would count as the oldest."""

    def merge_match_into_notebook(self, nb, nb_meta=("kernelspec", "language_info", "widgets"), cell_meta=()):
        return super().merge_match_into_notebook(nb, nb_meta, cell_meta)


def create_database(app: Sphinx) -> None:
    """Creates the tables of the cache before pages are read in parallel: two processes would both create them."""
    SharedCells(app.config.nb_execution_cache_path).list_cache_records()


def setup(app: Sphinx) -> dict[str, bool]:
    execution.get_cache = SharedCells
    app.connect("builder-inited", create_database)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
