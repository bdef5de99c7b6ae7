#!/usr/bin/env python3
"""hub_server.py - emulates the Hugging Face Hub on two ports of the loopback: the Hub, and the host
of its large files.

Usage: hub_server.py MODEL_DIR LOG PORTS [HOST]
  LOG     a file that gets a line for each request
  PORTS   a file that gets both port numbers
  HOST    name of the second host (default 127.0.0.1)

Repositories are named FAULT/NAME. Each has the files of MODEL_DIR in the revisions main and
refs/pr/1. FAULT is the fault of its answers:
  ok         no fault
  paged      the list of files comes in pages of two
  busy       the first request of each address gets 429
  flaky      the first request of each address gets 500
  dead       the first request of each address gets no answer: the connection ends
  cut        each answer of a large file ends early
  cutone     the first range of a large file that does not begin at 0 ends early
  norange    the first answer of a large file ends early, and ranges are ignored
  slow       a large file comes in 20 pieces, with pauses; also `slower`
  wrong      each answer of a large file has a wrong byte
  wrongonce  the first answer of a large file has a wrong byte
  offset     the answer of a range begins one byte too late
  long       the answer of a large file has more bytes than the file
  expired    the first request of a large file gets 403, as for an old address
  gated      the user has not accepted the terms
  private    the repository seems not to exist
  gone       the repository does not exist
  disabled   the repository was disabled
  token      requests need the token hf_good
  moved      the repository was renamed to ok/NAME
  evil       a file is named ../../../evil.json
  evilpath   a file is named /tmp/evil.json
  evilid     the hash of a large file is a path
  huge       a large file is larger than any disk
  loop       files redirect to themselves
  away       the list of files continues on another host
  pickle     the weights are in .bin files only
  junk       the API answers with HTML instead of JSON
  stall      the file NAME is not sent while the working directory has a file `hold`
  many       99,000 more files do not belong to a model
  over       8,200 more files have 2^50 bytes each

A data set wide/NAME has rows of 200,000 numbers. A repository FAULT/large has a config.json and a
model.safetensors of 40 MiB of noise."""
import copy
import functools
import hashlib
import http.server
import json
import os
import random
import sys
import threading
import time
import urllib.parse

ROOT, LOG, PORTS, HOST = [*sys.argv[1:], "127.0.0.1"][:4]
COMMIT, SECOND = "c0ffee" + "0" * 34, "c0ffee" + "1" * 34
lock = threading.Lock()
seen = {}
hub = cdn = None


large_files = {"config.json": b"{}", "model.safetensors": random.Random(1).randbytes(40 << 20)}


def files(fault, name):
    out = {}
    if name == "large":
        return large_files
    for folder, _, names in os.walk(ROOT):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                out[os.path.relpath(path, ROOT)] = f.read()
    if fault == "pickle":
        out = {k: v for k, v in out.items() if ".safetensors" not in k} | {"pytorch_model.bin": b"x"}
    return out


def row(i):
    return {"text": f"row {i}: \u00e9 \"x\"\n{'word ' * (i % 7 + 3)}", "question": f"{i} {{plus}} {i}?",
            "answer": f"#### {2 * i}", "article": f"News {i}", "highlights": f"short {i}", "instruction": f"do {i}",
            "messages": [{"role": "user", "content": f"ask {i}"}, {"role": "assistant", "content": f"say {i} \u00e9"}][i % 3 == 2:],
            "conversations": [{"from": "human", "value": f"ask {i}"}, {"from": "gpt", "value": "say"}], "n": i, "list": [1, {"a": None}]}


def is_large(name):
    return name.endswith((".safetensors", ".bin")) or name == "tokenizer.json"


@functools.cache
def entry_of(name, data):
    git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    e = {"type": "file", "path": name, "size": len(data), "oid": git}
    if is_large(name):
        pointer = b"version https://git-lfs.github.com/spec/v1\n"
        e["oid"] = hashlib.sha1(pointer).hexdigest()
        e["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return e


def entry(name, data):
    return copy.deepcopy(entry_of(name, data))


def first(key):
    """Returns true at the first call with this key."""
    with lock:
        seen[key] = seen.get(key, 0) + 1
        return seen[key] == 1


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def note(self):
        with lock, open(LOG, "a") as f:
            f.write(f"{'hub' if self.server is hub else 'cdn'} {self.path} range={self.headers.get('Range', '-')} "
                    f"auth={self.headers.get('Authorization', '-')} agent={self.headers.get('User-Agent', '-')}\n")

    def say(self, status, body=b"", **headers):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("X-Request-Id", "Root=1-test")
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":  # huggingface_hub sends such requests
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        cdn_port = f":{cdn.server_port}/"
        to_cdn = self.server is cdn or (self.path.startswith("http://") and cdn_port in self.path[:40])
        if self.path.startswith("http://"):  # a request to a proxy
            self.path = "/" + self.path[7:].split("/", 1)[1]
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(p) for p in url.path.strip("/").split("/")]
        if to_cdn:
            return self.large(parts, url)
        if parts[:2] == ["api", "models"] and len(parts) >= 5:
            return self.api(parts[2], parts[3], parts[4], parts[5:], url)
        if len(parts) >= 5 and parts[2] == "resolve":
            return self.resolve(parts[0], parts[1], parts[3], "/".join(parts[4:]), url)
        if parts[0] in ("splits", "rows"):
            return self.data(parts[0], dict(urllib.parse.parse_qsl(url.query)))
        self.say(404, {"error": "no such page"})

    def data(self, what, q):
        """Emulates the server of rows: FAULT/NAME has 250 rows in train and 3 in test."""
        fault = q["dataset"].split("/")[0]
        rows = {"train": 250, "test": 3} if fault != "HuggingFaceH4" else {"train_sft": 250, "test_gen": 3}
        if fault == "gone":
            return self.say(404, {"error": "The dataset does not exist."}, X_Error_Code="ExternalAuthenticatedError")
        if fault == "unready" and first(self.path):
            return self.say(500, {"error": "The server is busy."}, X_Error_Code="ResponseNotReady")
        if what == "splits":
            configs = ["main", "socratic"] if fault in ("openai", "two") else ["default"]
            return self.say(200, {"splits": [{"dataset": q["dataset"], "config": c, "split": s}
                                             for c in configs for s in rows if not q.get("config") or c == q["config"]]})
        at, n = int(q["offset"]), int(q["length"])
        if fault == "big" and n > 30:
            return self.say(500, {"error": "Too big."}, X_Error_Code="TooBigContentError")
        if n > 100:
            return self.say(422, {"error": "Parameter 'length' must not be greater than 100"})
        out = [{"row_idx": i + (fault == "other"), "row": row(i), "truncated_cells": ["text"] if fault == "short" else []}
               for i in range(at, min(at + n, rows[q["split"]]))]
        if fault == "wide":
            for r in out:
                r["row"]["list"] = [0] * 200000
        self.say(200, {"features": [], "rows": out, "num_rows_total": rows[q["split"]], "num_rows_per_page": 100,
                       "partial": fault == "part"}, X_Revision=COMMIT)

    def refuse(self, fault, key):
        """Answers the request if the fault is about whole requests. Returns true if the request is
        answered."""
        auth = self.headers.get("Authorization")
        if fault == "gone":
            self.say(404, b"", X_Error_Code="RepoNotFound")
        elif fault == "gated":
            self.say(403 if auth else 401, {"error": "gated"}, X_Error_Code="GatedRepo")
        elif fault == "private":
            self.say(401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        elif fault == "disabled":
            self.say(403, b"", X_Error_Message="Access to this resource is disabled.")
        elif fault == "token" and auth != "Bearer hf_good":
            self.say(401, b"", X_Error_Message="Invalid credentials in Authorization header")
        elif fault == "busy" and first(key):
            self.say(429, b"slow down", Retry_After="0")
        elif fault == "flaky" and first(key):
            self.say(500, b"<html>oops</html>")
        elif fault == "dead" and first(key):
            self.close_connection = True
        else:
            return False
        return True

    def api(self, fault, name, verb, rest, url):
        if self.refuse(fault, self.path):
            return
        if fault == "junk":
            return self.say(200, b"<html>hello</html>")
        if fault == "moved":
            return self.say(307, b"", Location=self.path.replace("/moved/", "/ok/"))
        if verb == "revision":
            commits = {"main": COMMIT, "refs/pr/1": SECOND}
            if rest[0] not in commits:
                return self.say(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
            return self.say(200, {"id": f"{fault}/{name}", "sha": commits[rest[0]], "siblings": []})
        entries = [entry(k, v) for k, v in sorted(files(fault, name).items())] + [{"type": "directory", "path": "sub", "oid": "0" * 40}]
        for e in entries:
            if fault == "evilid" and "lfs" in e:
                e["lfs"]["oid"] = "../../../../" + "a" * 52
            if fault == "huge" and "lfs" in e:
                e["lfs"]["size"] = e["size"] = 1 << 49
        if fault == "many":
            entries += [{"type": "file", "path": f"f{i}/y.bin", "oid": "0" * 40, "size": 1} for i in range(99000)]
        if fault == "over":
            entries += [{"type": "file", "path": f"s{i}.json", "oid": "0" * 40, "size": 1 << 50} for i in range(8200)]
        if fault in ("evil", "evilpath"):
            entries.append(entry("../../../evil.json" if fault == "evil" else "/tmp/evil.json", b"{}"))
        if fault == "away":
            return self.say(200, entries[:1], Link=f'<http://127.0.0.1:{cdn.server_port}/more>; rel="next"')
        if fault == "paged":
            at = int(dict(urllib.parse.parse_qsl(url.query)).get("cursor", "0"))
            more = {"Link": f'<http://127.0.0.1:{hub.server_port}{url.path}?cursor={at + 2}>; rel="next"'}
            return self.say(200, entries[at:at + 2], **(more if at + 2 < len(entries) else {}))
        self.say(200, entries)

    def resolve(self, fault, name, commit, path, url):
        if self.refuse(fault, self.path):
            return
        data = files(fault, name).get(path)
        if data is None or commit not in (COMMIT, SECOND):
            return self.say(404, b"", X_Error_Code="EntryNotFound")
        while fault == "stall" and path == name and os.path.exists("hold"):
            time.sleep(0.02)
        if fault == "loop":
            return self.say(302, b"again", Location=self.path)
        e = entry(path, data)
        if not is_large(path):
            return self.say(200, data, ETag=f'"{e["oid"]}"', X_Repo_Commit=commit)
        n = str(time.time_ns())
        self.say(302, b"Found. Redirecting", Location=f"http://{HOST}:{cdn.server_port}/{fault}/{name}/{path}?Signature={n}",
                 X_Repo_Commit=commit, X_Linked_Etag=f'"{e["lfs"]["oid"]}"', X_Linked_Size=str(len(data)))

    def large(self, parts, url):
        fault, name, path = parts[0], parts[1], "/".join(parts[2:])
        data = files(fault, name)[path]
        if fault == "expired" and first((fault, name, path)):
            return self.say(403, b"<Error>Request has expired</Error>")
        at, end, status, extra = 0, len(data) - 1, 200, {}
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and fault != "norange":
            low, high = asked[6:].split("-")
            at, end = int(low), min(int(high or len(data) - 1), len(data) - 1)
            if at >= len(data):
                return self.say(416, b"", Content_Range=f"bytes */{len(data)}")
            if fault == "offset":
                at += 1
            status, extra = 206, {"Content_Range": f"bytes {at}-{end}/{len(data)}"}
        body = data[at:end + 1]
        if fault == "wrong" or (fault == "wrongonce" and first((fault, name, path))):
            body = bytes([body[0] ^ 1]) + body[1:]  # changes a byte, because only this request reads this part of the file
        if fault == "long":
            body += b"more"
        self.send_response(status)
        for key, value in extra.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("ETag", '"of-the-cdn"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in ("cut", "offset") or (fault == "cutone" and at and first((fault, name, path))) or (fault == "norange" and first((fault, name, path))):
            self.wfile.write(body[:len(body) // 2 if len(body) > 60000 else len(body)])
            self.close_connection = True
        elif fault in ("slow", "slower"):
            step = max(1, len(body) // 20)
            for i in range(0, len(body), step):
                self.wfile.write(body[i:i + step])
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512  # long enough for dozens of programs that connect at once

    def handle_error(self, request, address):
        pass  # the client has closed the connection


hub, cdn = Server(("127.0.0.1", 0), Handler), Server(("127.0.0.1", 0), Handler)
with open(PORTS + ".tmp", "w") as f:
    print(hub.server_port, cdn.server_port, file=f)
os.rename(PORTS + ".tmp", PORTS)
threading.Thread(target=cdn.serve_forever, daemon=True).start()
hub.serve_forever()
