"""Makes docs/pictures/home.json, the live view of the site's first page: a pretrained encoder reads a sentence.

::

    python docs/make_home_view.py
"""

from pathlib import Path

from make_gallery import encoder

from regard.viewer import View

FILE = Path(__file__).parent / "pictures" / "home.json"

if __name__ == "__main__":
    View(encoder(), budget_bytes=300_000).save(FILE)
