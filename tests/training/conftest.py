import pytest

from translation_runs import corpus, own_cache, same_threads, tiny  # noqa: F401


@pytest.fixture(scope="session")
def train():
    """Trains in a run folder, silently."""
    from regard.tasks.registry import find
    from regard.training import run
    from regard.training.reporter import SilentReporter
    from regard.training.run_folder import RunFolder

    def call(config, path, *, overwrite=False, resume=False, reporter=None, **options):
        folder = RunFolder.open(path) if resume else RunFolder.create(path, overwrite)
        reporter = reporter or SilentReporter()
        return run.train_run(find(config.task), config, folder, resume=resume, reporter=reporter, **options)

    return call


@pytest.fixture(scope="session")
def signal_at():
    """A reporter that sends a signal to its own process when a step has been reported so many times."""
    from signal_at import SignalAt

    return SignalAt
