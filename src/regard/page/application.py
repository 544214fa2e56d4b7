"""The page as a Starlette application: its files, and the requests of its script."""

import json
import secrets
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from regard.errors import ArgumentError, RegardError
from regard.page.access import MOST_UPLOADED, UPLOAD
from regard.page.examples import FILE_TYPES
from regard.page.newest_first import NewestFirst, ReplacedError
from regard.page.reading import MOST_CHARACTERS, Reading, ServedModel
from regard.records import Document
from regard.viewer import module_path, payload, tile_payload

STATIC = Path(__file__).parent / "static"

FILES = {path.name: {".js": "text/javascript", ".css": "text/css"}[path.suffix]
         for path in STATIC.iterdir() if path.suffix in (".js", ".css")}  # fmt: skip
"""The files besides ``index.html``, with their types."""

MOST_READINGS = 16
"""How many readings, the newest, are kept for worked steps and exact tiles."""

MOST_TILE = 4_000_000
"""The most weights of a tile."""


class AsciiJSON(JSONResponse):
    """JSON in ASCII, so that it can hold lone surrogates, as texts can."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Page:
    """The state behind the page: the models, at least one, the queue, and the last readings. ``language`` is ``"en"``,
    ``"zh"`` or None: as the browser asks."""

    def __init__(self, models: Sequence[ServedModel], language: str | None = None):
        self.models, self.language = list(models), language
        self.queue = NewestFirst()
        self.readings: OrderedDict[str, Reading] = OrderedDict()

    def application(self) -> Starlette:
        """Returns the application with its routes, which `regard.page.access.Access` must protect."""

        async def index(request: Request) -> Response:
            return FileResponse(STATIC / "index.html", media_type="text/html")

        async def file(request: Request) -> Response:
            name = request.path_params["name"]
            if name == "viewer.js":
                return FileResponse(module_path(), media_type="text/javascript")
            if name not in FILES:
                raise HTTPException(404, "there is no such file")
            return FileResponse(STATIC / name, media_type=FILES[name])

        async def models(request: Request) -> Response:
            limits = {"characters": MOST_CHARACTERS, "upload": MOST_UPLOADED}
            described = [model.to_dict() for model in self.models]
            return AsciiJSON({"models": described, "limits": limits, "language": self.language})

        routes = [
            Route("/", index),
            Route("/static/{name}", file),
            Route("/models", models),
            Route("/open", self.open, methods=["POST"]),
            Route("/example", self.example),
            Route("/read", self.read, methods=["POST"]),
            Route(UPLOAD, self.upload, methods=["POST"]),
            Route("/steps", self.steps, methods=["POST"]),
            Route("/tile", self.tile, methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _refused, Exception: _failed})

    async def open(self, request: Request) -> Response:
        """Returns the description of a model, once it is loaded; the body has ``model``, ``pane`` and ``number``."""
        body = await _body(request)
        model = self.models[_whole(body, "model", len(self.models))]
        pane, count = _text(body, "pane"), _whole(body, "number")

        def load() -> dict[str, Any]:
            model.load()
            return model.to_dict()

        return await self._answer(f"{pane[:80]} open", count, load, model)

    async def example(self, request: Request) -> Response:
        """Returns the file of an example; the address has ``model`` and ``example``, its number."""
        options = _numbers(request, "model", "example")
        examples = self.models[_whole(options, "model", len(self.models))].examples
        path = examples[_whole(options, "example", len(examples))].path
        if path is None or not path.is_file():
            raise HTTPException(404, "there is no such file any more")
        return FileResponse(path, media_type=FILE_TYPES[path.suffix.lower()])

    async def read(self, request: Request) -> Response:
        """Returns the answer of a model to a text, and its attention.

        The body has ``model`` (its index in the list), ``text``, ``pane`` (the part of the page) and ``number`` (counts
        the requests of the pane).
        """
        body = await _body(request)
        number = _whole(body, "model", len(self.models))
        text, pane, count = _text(body, "text"), _text(body, "pane"), _whole(body, "number")
        model = self.models[number]
        return await self._answer(pane[:80], count, lambda: self._shown(model.read(text)), model)

    async def upload(self, request: Request) -> Response:
        """Returns the answer of a model to a file, and its attention.

        The body is the content of the file; the address has ``model``, ``pane`` and ``number``, as in `read`.
        """
        options = _numbers(request, "model", "number")
        model = self.models[_whole(options, "model", len(self.models))]
        pane, count = _text(options, "pane"), _whole(options, "number")
        content = await request.body()
        return await self._answer(pane[:80], count, lambda: self._shown(model.read_file(content)), model)

    async def steps(self, request: Request) -> Response:
        """Returns a worked calculation; the body has ``reading``, ``record``, ``head``, ``pane`` and ``number``."""
        body = await _body(request)
        reading = self._reading(body)
        record = _whole(body, "record", len(reading.document.records))
        head = _whole(body, "head", reading.document.records[record].heads)
        pane, count = _text(body, "pane"), _whole(body, "number")

        def compute() -> dict[str, Any]:
            if reading.steps is None:
                raise ArgumentError("the worked steps of this model are unknown: its queries and keys were not kept")
            worked = Document(reading.document.title, (), steps=(reading.steps(record, head),))
            return {"payload": payload(worked)}

        return await self._answer(f"{pane[:80]} steps", count, compute)

    async def tile(self, request: Request) -> Response:
        """Returns exact weights; the body has ``reading``, ``record``, ``queries`` and ``keys`` as [first, stop]."""
        body = await _body(request)
        records = self._reading(body).document.records
        record = records[_whole(body, "record", len(records))]
        rows, columns = _range(body, "queries", len(record.queries)), _range(body, "keys", len(record.keys))
        if record.heads * (rows[1] - rows[0]) * (columns[1] - columns[0]) > MOST_TILE:
            raise HTTPException(413, f"a tile must have at most {MOST_TILE:,} weights")
        return AsciiJSON(tile_payload(record, rows, columns))

    def _shown(self, reading: Reading) -> dict[str, Any]:
        """Returns the answer of a reading and the payload of its attention; stores the reading under a new name."""
        answer = reading.answer.to_dict()
        if not reading.document.records:
            return {"answer": answer, "reading": None, "payload": None}
        name = secrets.token_urlsafe(12)
        self.readings[name] = reading
        while len(self.readings) > MOST_READINGS:
            self.readings.popitem(last=False)
        return {
            "answer": answer,
            "reading": name,
            "payload": payload(reading.document),
            "first": reading.first,
            "view": reading.view,
            "steps": reading.steps is not None,
        }

    def _reading(self, body: dict[str, Any]) -> Reading:
        reading = self.readings.get(_text(body, "reading"))
        if reading is None:
            raise HTTPException(410, "this text is not kept any more; type it again")
        return reading

    async def _answer(self, key: str, number: int, compute: Any, model: ServedModel | None = None) -> Response:
        """Returns the result of a computation, or its error, as JSON; the server continues."""
        try:
            return AsciiJSON(await self.queue.run(key, number, compute))
        except ReplacedError:
            return AsciiJSON({"replaced": True}, 409)
        except RegardError as error:
            return AsciiJSON({"error": _line(error)}, 422)
        except Exception as error:
            message = f"the model failed ({type(error).__name__}: {_line(error)})"
            line = f"regard: {'' if model is None else model.name + ': '}{message}"
            line = line if line.isprintable() else line.encode("ascii", "backslashreplace").decode()
            print(line, file=sys.stderr)
            return AsciiJSON({"error": message}, 500)


async def _body(request: Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "the body must be an object of JSON")
    return body


def _numbers(request: Request, *names: str) -> dict[str, Any]:
    """Returns the options of an address, those with these names as numbers; None where one is none."""
    options: dict[str, Any] = dict(request.query_params)
    for name in set(names) & options.keys():
        text = options[name]
        options[name] = int(text) if text.isascii() and text.isdecimal() and len(text) <= 16 else None
    return options


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise HTTPException(400, f"{name} must be a text")
    return value


def _whole(body: dict[str, Any], name: str, below: int = 2**53) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise HTTPException(400, f"{name} must be a whole number from 0 to below {below:,}")
    return value


def _range(body: dict[str, Any], name: str, length: int) -> tuple[int, int]:
    value = body.get(name)
    if isinstance(value, list) and len(value) == 2 and all(type(end) is int for end in value):
        first, last = value
        if 0 <= first < last <= length:
            return first, last
    raise HTTPException(400, f"{name} must be [first, last] with 0 ≤ first < last ≤ {length:,}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return AsciiJSON({"error": error.detail}, error.status_code, headers=error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return AsciiJSON({"error": f"the page failed ({type(error).__name__}: {_line(error)})"}, 500)
