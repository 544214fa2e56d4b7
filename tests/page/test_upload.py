"""Files on the page: what is uploaded gives what the run predicts, and what is refused."""

import itertools

import pytest

import regard
from page_servers import Echo, serving
from regard.page.access import MOST_UPLOADED
from regard.page.models import open_model

BYTES = {"Content-Type": "application/octet-stream"}


NUMBERS = itertools.count(1)


def upload(client, content, query=None, headers=BYTES):
    query = query or f"model=0&pane=a&number={next(NUMBERS)}"
    return client.ask(f"upload?{query}", content, method="POST", headers=headers)


@pytest.mark.parametrize(("name", "first"), [("caption-soft", 0), ("images-vit", 2)])
def test_an_uploaded_image_gives_what_the_run_predicts(image_run, name, first):
    path = image_run(name) / "corpus" / "test-2.png"
    trained = regard.load(image_run(name))
    (expected,) = trained.predict([path])
    with serving(open_model(image_run(name))) as client:
        (model,) = client.ask("models").json["models"]
        assert model["accepts"] == "image"
        assert [one["text"] for one in model["examples"]] == [f"test-{number}.png" for number in (1, 2, 3, 4)]
        reply = client.ask("example?model=0&example=1")
        assert (reply.status, reply.headers["content-type"], reply.body) == (200, "image/png", path.read_bytes())
        assert client.ask("example?model=0&example=4").status == 400
        found = upload(client, path.read_bytes()).json
        steps = {"reading": found["reading"], "record": 0, "head": 0, "pane": "a", "number": 1}
        assert client.ask("steps", steps).status == 200
    assert found["answer"]["text"] == expected.answer_text
    assert [one["label"] for one in found["answer"]["ranked"]] == [label for label, _ in expected.ranked()]
    assert found["first"] == first
    records, axes = found["payload"]["records"], found["payload"]["axes"]
    assert axes[records[first]["keys"]]["kind"] == "grid"


def test_an_upload_that_is_no_image_is_a_message(image_run):
    with serving(open_model(image_run("caption-soft"))) as client:
        reply = upload(client, b"no image")
        assert (reply.status, "is not an image that can be read" in reply.json["error"]) == (422, True)
        assert upload(client, b"").status == 422
        assert "reads no text; choose a file with an image" in client.read("a text", pane="z").json["error"]
        assert upload(client, b"x", "model=1&pane=a&number=1").status == 400
        assert upload(client, b"x", "model=0&number=1").status == 400
        assert upload(client, b"x", headers={"Content-Type": "application/json"}).status == 415
        assert upload(client, b"x", headers={"Content-Type": "multipart/form-data"}).status == 415
        assert upload(client, b"x", headers={**BYTES, "Origin": "http://evil.example"}).status == 403
        too_long = {**BYTES, "Content-Length": str(MOST_UPLOADED + 1)}
        assert upload(client, b"x", headers=too_long).status == 413
        # Only this path takes bytes.
        assert client.ask("read", b"x", headers=BYTES).status == 415
    with serving(Echo()) as client:
        assert "reads texts, no files" in upload(client, b"x").json["error"]
