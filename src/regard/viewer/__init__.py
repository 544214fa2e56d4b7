"""A viewer of attention weights: one HTML file, a notebook's output, or a picture, from plain records.

::

    from regard.viewer import View

    View(document)                        # in a notebook
    View(document).save("attention.html") # one file that needs nothing else
    View(document, view="heads", layer=3).save("heads.svg")
"""

from regard.lazy_names import public_names
from regard.viewer.html_file import module_path
from regard.viewer.overview import tile_payload
from regard.viewer.payload import payload
from regard.viewer.view import View, steps_record

__all__ = ["View", "payload", "tile_payload", "module_path", "steps_record"]

__dir__ = public_names(__name__)
