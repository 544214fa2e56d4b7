"""A figure that notebooks show without pyplot. The module imports matplotlib: import it where a picture is drawn."""

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A matplotlib figure that is its own output in a notebook, whether or not pyplot was imported."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()
