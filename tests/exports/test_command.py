"""``regard export``, and the method of a trained run."""

import json

import pytest

import regard
from page_runs import run_of  # noqa: F401
from regard.exports.export import INDEX
from translation_runs import corpus, own_cache, same_threads, tiny  # noqa: F401

pytest.importorskip("transformers")


def test_a_run_is_exported_and_the_files_are_listed(run_of, run_command, tmp_path):  # noqa: F811
    path, target = run_of("language-char"), tmp_path / "exported"
    code, output, error = run_command("export", path, "--to", "hf", "--output", target)
    assert not code, error
    assert "regard: exporting" in error
    assert "Starcoder2ForCausalLM: largest difference" in output
    for name in ("config.json", "model.safetensors", "tokenizer.json", INDEX):
        assert name in output
    assert "next: python -c" in output
    index = json.loads((target / INDEX).read_text())
    assert (index["task"], index["run"]) == ("language", path.name)

    def refused(*arguments):
        code, _, error = run_command("export", *arguments)
        assert code == 2
        lines = [line for line in error.splitlines() if line.startswith("regard: error:")]
        assert len(lines) == 1
        assert "Traceback" not in error
        return lines[0]

    assert "with --overwrite, or name another folder with --output" in refused(path, "--to", "HF", "-o", target)
    assert not run_command("export", path, "HF", "-o", target, "--overwrite")[0]
    assert "unknown format 'onx'; did you mean 'onnx'" in refused(path, "--to", "onx")
    assert "--int8 is for onnx" in refused(path, "--to", "torch", "--int8")
    assert "there is no run folder" in refused(tmp_path / "nothing", "--to", "onnx")
    assert "--to needs a value: onnx, torch or hf" in refused(path)
    assert "there is no option --formats; here it is --to" in refused(path, "--formats", "onnx")
    assert "there is no option --onnx; here it is --to" in refused(path, "--onnx")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["exported"]


def test_a_trained_run_is_exported_from_python(run_of, tmp_path, monkeypatch):  # noqa: F811
    trained = regard.load(run_of("language-char"))
    monkeypatch.chdir(tmp_path)
    exported = trained.export("hf")
    name = f"{trained.folder.path.name}-hf"
    assert (str(exported.folder), [one.name for one in tmp_path.iterdir()]) == (name, [name])
    with pytest.raises(regard.errors.RunError, match=r"overwrite=True, or name another folder with folder$"):
        trained.export("hf")
    assert exported.differences["Starcoder2ForCausalLM"] < 1e-4
    with pytest.raises(regard.errors.ArgumentError, match="text classifier"):
        regard.load(run_of("classify")).export("hf", tmp_path / "other")
