"""A viewer of attention weights: one HTML file, a notebook's output, or a picture, from plain records.

::

    from regard.viewer import View

    View(weights, tokens)                        # in a notebook
    View(weights, tokens).save("attention.html") # one file that needs nothing else
    View(outputs.attentions, tokens, view="lines", layer=3).save("lines.svg")
"""

from regard.names.lazy_names import public_names
from regard.viewer.contents import steps_record
from regard.viewer.html_file import module_path
from regard.viewer.overview import tile_payload
from regard.viewer.payload import payload
from regard.viewer.view import View

__all__ = ["View", "payload", "tile_payload", "module_path", "steps_record"]

__dir__ = public_names(__name__)
