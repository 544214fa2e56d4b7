from image_runs import image_run, small_corpora  # noqa: F401
from page_runs import run_of  # noqa: F401
from pretrained_folders import folder_of, tokenizer  # noqa: F401
from translation_runs import corpus, own_cache, same_threads, tiny  # noqa: F401
