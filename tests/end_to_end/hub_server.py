"""Stands in for a model hub: the few answers that huggingface_hub asks for, and the ways in which they go wrong."""
import hashlib
import http.server
import json
import re
import threading

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """`files`: {"org/name": {"file": bytes}}; large ones are redirected to a content server, as the hub does it."""

    def __init__(self, files, datasets=()):
        self.files, self.datasets = files, set(datasets)
        self.requests = []         # "GET /path [range]"
        self.cut_once = set()      # files whose first answer ends in the middle
        self.cut_always = set()
        self.altered = set()       # files whose bytes are not those that were announced
        self.token = None          # what Authorization must bear
        self.stalled = threading.Event()   # set when a stalled answer waits
        self.go_on = threading.Event()
        self.stall = None          # file whose answer waits for go_on
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_HEAD(self):
                hub.answer(self, False)

            def do_GET(self):
                hub.answer(self, True)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler, with_body):
        handler.close_connection = True
        path = handler.path.split("?")[0]
        self.requests.append(f"{handler.command} {path} {handler.headers.get('Range', '')}".strip())
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return self.refuse(handler, 401, "GatedRepo")
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+)", path):
            return self.describe(handler, match[2], match[3])
        if match := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
            return self.send(handler, match[1], match[2], with_body)
        if match := re.fullmatch(r"(?:/datasets)?/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            return self.resolve(handler, match[1], match[2], with_body)
        return self.refuse(handler, 404, "RepoNotFound")

    def refuse(self, handler, status, code):
        handler.send_response(status)
        handler.send_header("X-Error-Code", code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def describe(self, handler, name, revision):
        if name not in self.files:
            return self.refuse(handler, 404, "RepoNotFound")
        if revision not in ("main", COMMIT):
            return self.refuse(handler, 404, "RevisionNotFound")
        body = json.dumps({"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "downloads": 0,
                           "likes": 0, "cardData": {"license": "apache-2.0"},
                           "siblings": [{"rfilename": file} for file in self.files[name]]}).encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def resolve(self, handler, name, file, with_body):
        if name not in self.files:
            return self.refuse(handler, 404, "RepoNotFound")
        if file not in self.files[name]:
            return self.refuse(handler, 404, "EntryNotFound")
        content = self.files[name][file]
        if not file.endswith((".safetensors", ".parquet")):
            handler.send_response(200)
            handler.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            handler.send_header("X-Repo-Commit", COMMIT)
            handler.send_header("Content-Length", str(len(content)))
            handler.end_headers()
            if with_body:
                handler.wfile.write(content)
            return None
        handler.send_response(302)
        handler.send_header("Location", f"{self.url}/cdn/{name}/{file}")
        handler.send_header("X-Repo-Commit", COMMIT)
        handler.send_header("X-Linked-Etag", f'"{hashlib.sha256(content).hexdigest()}"')
        handler.send_header("X-Linked-Size", str(len(content)))
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return None

    def send(self, handler, name, file, with_body):
        content = self.files[name][file]
        if file in self.altered:
            content = content[:-1] + bytes([content[-1] ^ 1])
        begin = 0
        if found := re.match(r"bytes=(\d+)-", handler.headers.get("Range", "")):
            begin = int(found[1])
        handler.send_response(206 if begin else 200)
        handler.send_header("Content-Length", str(len(content) - begin))
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        handler.end_headers()
        if not with_body:
            return
        end = len(content)
        if file in self.cut_once or file in self.cut_always:
            self.cut_once.discard(file)
            end = begin + (end - begin) // 2
        middle = begin + (end - begin) // 2
        handler.wfile.write(content[begin:middle])
        handler.wfile.flush()
        if file == self.stall:
            self.stalled.set()
            self.go_on.wait()
        try:
            handler.wfile.write(content[middle:end])
        except ConnectionError:  # a client that was killed
            pass
