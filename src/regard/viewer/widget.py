"""The viewer as a widget of Jupyter (the extra ``regard[widget]``), whose payload Python can replace.

::

    from regard.viewer.widget import widget

    shown = widget(weights, tokens)      # shows it
    shown.payload = View(other).payload()
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from regard.errors import MissingPartError
from regard.viewer.html_file import module_text
from regard.viewer.overview import tile_payload
from regard.viewer.view import HEIGHT, View

if TYPE_CHECKING:
    from anywidget import AnyWidget

START_SCRIPT = """
function render({ model, el }) {
  const options = { ...model.get("options"), height: model.get("height") };
  options.fetchTile = (record, q0, q1, k0, k1) => new Promise((resolve, reject) => {
    const id = `${Date.now()}-${Math.random()}`;
    const answer = (message) => {
      if (message.id !== id) return;
      model.off("msg:custom", answer);
      if (message.error) reject(new Error(message.error));
      else resolve(message.tile);
    };
    model.on("msg:custom", answer);
    model.send({ id, tile: [record, q0, q1, k0, k1] });
  });
  const view = mount(el, model.get("payload"), options);
  const update = () => view.update(model.get("payload"));
  model.on("change:payload", update);
  return () => { model.off("change:payload", update); view.destroy(); };
}
export default { render };
"""


def widget(content: Any, tokens: Any = None, **options: Any) -> AnyWidget:
    """Returns a widget that shows attention weights; exact tiles of long records come from the kernel.

    Args:
        content, tokens: as for `View`.
        **options: as for `View`.

    Returns:
        An ``anywidget.AnyWidget`` with the traits ``payload``, ``options`` and ``height``.

    Raises:
        MissingPartError: anywidget is not installed.
    """
    view = View(content, tokens, **options)
    view_widget = _widget_class()(payload=view.payload(), options=view.options(), height=view.height or HEIGHT)
    view_widget.document = view.document
    return view_widget


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError as error:
        raise MissingPartError("anywidget", "widget") from error

    class AttentionWidget(anywidget.AnyWidget):
        """The viewer's module with its payload."""

        _esm = module_text() + START_SCRIPT
        payload = traitlets.Dict().tag(sync=True)
        options = traitlets.Dict().tag(sync=True)
        height = traitlets.Int(HEIGHT).tag(sync=True)
        document: Any = None

        def __init__(self, **traits: Any):
            super().__init__(**traits)
            self.on_msg(self._answer)

        def _answer(self, _: Any, message: Any, __: Any) -> None:
            """Sends the exact tile that the module requests, or the reason why there is none."""
            try:
                record, q0, q1, k0, k1 = (int(number) for number in message["tile"])
                tile = tile_payload(self.document.records[record], (q0, q1), (k0, k1))
                self.send({"id": message["id"], "tile": tile})
            except (KeyError, TypeError, ValueError, IndexError) as error:
                self.send({"id": message.get("id") if isinstance(message, dict) else None, "error": str(error)})

    return AttentionWidget
