#!/usr/bin/env bash
# datasets 5.2.0, pillow 13.0.0: a table with a Translation and an Image column cannot be written to Parquet; each alone can.
#
# One guesses that the columns of a table are written one by one. As soon as one column needs encoding, all of them are
# visited, and Translation has not the method that the visit asks for. Multimodal translation (an image with its caption in
# two languages) is such a table.
#
# Seen: Translation ok · Image ok · both AttributeError: 'Translation' object has no attribute 'items'
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet datasets==5.2.0 pillow==13.0.0
cd "$folder"
HF_HUB_OFFLINE=1 venv/bin/python -W ignore - <<'PYTHON'
import datasets
from PIL import Image

datasets.disable_progress_bars()
columns = {
    "caption": ([{"de": "ein Hund", "en": "a dog"}], datasets.Translation(["de", "en"])),
    "image": ([Image.new("L", (3, 3))], datasets.Image()),
}


def written(*names):
    features = datasets.Features({name: columns[name][1] for name in names})
    table = datasets.Dataset.from_dict({name: columns[name][0] for name in names}, features=features)
    try:
        table.to_parquet("table.parquet")
    except AttributeError as error:
        return f"AttributeError: {error}"
    return "ok"


found = written("caption"), written("image"), written("caption", "image")
print("Translation {} · Image {} · both {}".format(*found))
assert found == ("ok", "ok", "AttributeError: 'Translation' object has no attribute 'items'")
PYTHON
