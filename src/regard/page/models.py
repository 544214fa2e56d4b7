"""Opening the models of the page: run folders of regard, and local folders of Hugging Face models."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from regard.errors import RunError
from regard.page.reading import ServedModel
from regard.training.hub import is_hub_address, local_run


def open_model(path: str | Path, device: str = "cpu") -> ServedModel:
    """Returns the model of a folder: a run, ``hf://OWNER/NAME`` of one on the Hugging Face hub, which alone is loaded
    from a network, or a folder that `save_pretrained` of Hugging Face wrote. Raises RunError if there is no model."""
    folder = local_run(str(path)) if is_hub_address(path) else Path(path)
    try:
        is_run, is_pretrained = ((folder / name).is_file() for name in ("config.yaml", "config.json"))
        exists = folder.is_dir()
    except (OSError, ValueError) as error:  # a name that no file can have
        raise RunError(f"{path!s:.80} is not the name of a folder") from error
    if is_run:
        from regard.page.run_model import RunModel

        return RunModel(folder, device)
    if is_pretrained:
        from regard.page.pretrained_model import PretrainedModel

        return PretrainedModel(folder, device)
    advice = "give a run folder of regard train, or a folder of a Hugging Face model on this machine"
    if not exists:
        raise RunError(f"there is no folder {path!s:.200}; {advice}")
    raise RunError(f"{path!s:.200} has neither a config.yaml nor a config.json; {advice}")


def open_models(paths: Sequence[str | Path], device: str = "cpu") -> list[ServedModel]:
    """Opens several models, as `open_model`, and gives them distinct names."""
    models = [open_model(path, device) for path in dict.fromkeys(map(str, paths))]
    tell_apart(models)
    return models


def tell_apart(models: Sequence[ServedModel]) -> None:
    """Gives models of one name the names of their folders."""
    names = Counter(model.name for model in models)
    for model in models:
        if names[model.name] > 1:
            model.name = model.path
