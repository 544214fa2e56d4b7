from page_runs import run_of  # noqa: F401
from translation_runs import corpus, own_cache, same_threads, tiny  # noqa: F401
