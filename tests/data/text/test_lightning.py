"""The loader under Lightning's trainer: it is taken as it is, and goes on after an interruption."""

import datasets
import lightning
import pytest
import torch

from regard.data.text.batches import encode_pairs, pair_batches
from regard.data.text.tokenizers import Tokenizer


class Watcher(lightning.LightningModule):
    """Notes the rows of each batch; stops in the middle when asked to."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.stop_after = stop_after
        self.seen = []

    def training_step(self, batch, _):
        self.seen.append(tuple(batch.index.tolist()))
        if len(self.seen) == self.stop_after:
            self.trainer.should_stop = True
        return self.weight * 0

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture
def loader():
    texts = ["a" * size for size in range(1, 30)]
    tokenizer = Tokenizer.train(texts, "char")
    encoded = encode_pairs(datasets.Dataset.from_dict({"source": texts, "target": texts}), tokenizer, tokenizer)
    return lambda: pair_batches(encoded, 61, seed=3)


@pytest.mark.filterwarnings("ignore")  # Lightning's and torch's own
@pytest.mark.parametrize("stop_after", [2, 14])
def test_a_resumed_run_sees_what_an_uninterrupted_one_sees(loader, tmp_path, stop_after):
    def trainer():
        return lightning.Trainer(
            max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, min_steps=None,
        )  # fmt: skip

    whole = Watcher()
    trainer().fit(whole, loader())
    alone = loader()
    assert whole.seen == [tuple(batch.index.tolist()) for _ in range(3) for batch in alone]

    path = tmp_path / "stopped.ckpt"
    first, stopping = Watcher(stop_after), trainer()
    first.on_train_batch_end = lambda *_: (  # the checkpoint of whoever is killed right after it
        stopping.save_checkpoint(path) if len(first.seen) == stop_after else None
    )
    stopping.fit(first, loader())
    second = Watcher()
    trainer().fit(second, loader(), ckpt_path=path, weights_only=True)
    assert whole.seen[:stop_after] + second.seen == whole.seen
