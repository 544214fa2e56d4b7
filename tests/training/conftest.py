from translation_runs import corpus, own_cache, same_threads, tiny  # noqa: F401
