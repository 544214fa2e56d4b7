"""A server that speaks as much of the Hugging Face hub as uploading and downloading a model needs."""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_secret"


class FakeHub:
    """A hub in a thread; a context.

    Attributes:
        repositories: ``"owner/name"`` → commits, the newest last: each a mapping from names to contents.
        private: names of the private repositories.
        messages: the messages of all commits.
    """

    def __init__(self):
        self.repositories, self.private, self.messages, self.blobs = {}, set(), [], {}
        self.requests = []

    def __enter__(self):
        hub = self

        class Bound(Handler):
            pass

        Bound.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def commit(self, name, files):
        """Add a commit with these files to a repository, besides those of the commit before it."""
        commits = self.repositories.setdefault(name, [])
        commits.append({**(commits[-1] if commits else {}), **files})
        return sha(name, len(commits))

    def files(self, name, revision="main"):
        """The files of a revision, and its commit; None: there is no such revision."""
        commits = self.repositories[name]
        if revision == "main" and commits:
            return commits[-1], sha(name, len(commits))
        return next(
            ((files, revision) for number, files in enumerate(commits, 1) if sha(name, number) == revision), None
        )


def sha(name, number):
    return hashlib.sha1(f"{name} {number}".encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of `huggingface_hub`."""

    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *arguments):
        pass

    def answer(self, status, content=b"", **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code=""):
        self.answer(status, {"error": code}, **({"X-Error-Code": code} if code else {}))

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        self.hub.requests.append(path)
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401)
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            files = [
                {"path": one["path"], "shouldIgnore": False,
                 "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular"}
                for one in json.loads(body)["files"]
            ]  # fmt: skip
            return self.answer(200, {"files": files})
        if re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self.answer(200, {"transfer": "basic", "objects": objects})
        if match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            return self.take_commit(match[1], [json.loads(line) for line in body.splitlines()])
        return self.refuse(404)

    def do_PUT(self):
        content = (
            self.read_chunks()
            if "Content-Length" not in self.headers
            else self.rfile.read(int(self.headers["Content-Length"]))
        )
        assert self.path == f"/lfs/{hashlib.sha256(content).hexdigest()}"
        self.hub.blobs[self.path.rpartition("/")[2]] = content
        self.answer(200)

    def read_chunks(self):
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def create(self, options):
        name = f"{options['organization']}/{options['name']}"
        if options["organization"] == "others":
            return self.refuse(403)
        if name in self.hub.repositories:
            return self.answer(409, {"error": "You already created this model repo", "url": name})
        self.hub.repositories[name] = []
        if options.get("visibility") == "private" or options.get("private"):
            self.hub.private.add(name)
        return self.answer(200, {"url": f"{self.hub.endpoint}/{name}", "name": name})

    def take_commit(self, name, lines):
        files = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                if (parent := value.get("parentCommit")) and parent != self.hub.files(name)[1]:
                    return self.refuse(412)
                self.hub.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files[value["path"]] = self.hub.blobs[value["oid"]]
        commit = self.hub.commit(name, files)
        return self.answer(200, {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.endpoint}/{name}"})

    def do_GET(self):
        path = self.path.split("?")[0]
        self.hub.requests.append(path)
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path)
        if plain := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            return self.describe(plain[1])
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        name, revision = (match[1], match[3]) if match else (file[1], file[2]) if file else ("", "")
        permitted = name not in self.hub.private or self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if name not in self.hub.repositories or not permitted:
            return self.refuse(401, "RepoNotFound")
        if (state := self.hub.files(name, revision)) is None:
            return self.refuse(404, "RevisionNotFound")
        files, commit = state
        if file:
            if file[3] not in files:
                return self.refuse(404, "EntryNotFound")
            content = files[file[3]]
            return self.answer(200, content, ETag=f'"{blob(content)}"', X_Repo_Commit=commit)
        if match[2] == "revision":
            return self.answer(200, {"id": name, "sha": commit, "siblings": [{"rfilename": one} for one in files]})
        entries = [
            {"type": "file", "path": one, "size": len(content), "oid": blob(content)} for one, content in files.items()
        ]
        return self.answer(200, entries)

    def describe(self, name):
        if name not in self.hub.repositories or self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.refuse(401, "RepoNotFound")
        files, commit = self.hub.files(name) if self.hub.repositories[name] else ({}, None)
        siblings = [{"rfilename": one} for one in files]
        content = {"id": name, "sha": commit, "private": name in self.hub.private, "siblings": siblings}
        return self.answer(200, content)

    do_HEAD = do_GET  # noqa: N815


def blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
