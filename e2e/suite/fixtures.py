"""What the servers work on: the same files in every working folder, and a page on loopback."""

import os
import sqlite3
import struct
import subprocess
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"""<!doctype html><html><head><title>A crib</title></head><body><article><h1>A crib</h1>
<p>A crib is where tools wait until somebody asks for them. This one holds a hammer, a saw and a spirit level.</p>
<ul><li>hammer</li><li>saw</li><li>spirit level</li></ul></article></body></html>"""


def working_folder(path):
    """Files, a git repository with two commits and an unstaged change, and a small database."""
    files = path / "files"
    files.mkdir(parents=True)
    (files / "hello.txt").write_text("hello\n")
    (files / "lines.txt").write_text("".join(f"line {n}\n" for n in range(1, 6)))
    (files / "beep.wav").write_bytes(wav())
    (files / "dot.png").write_bytes(png())
    (files / "new.txt").write_text("new")
    repository(path / "repo")
    with sqlite3.connect(path / "notes.db") as database:
        database.execute("create table notes (id integer primary key, title text)")
        database.executemany("insert into notes values (?, ?)", [(1, "one"), (2, "zwei"), (3, "três")])
    database.close()
    return path


def repository(path):
    # Fixed names and times give the same commit hashes everywhere.
    who = {"NAME": "A Person", "EMAIL": "person@example.com", "DATE": "2026-01-02T03:04:05+0000"}
    env = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
    env |= {"PATH": os.environ["PATH"], "HOME": str(path.parent), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=path, env=env, check=True, stdout=subprocess.DEVNULL)

    path.mkdir()
    git("init", "-q", "-b", "main")
    for number, text in enumerate(("first\n", "first\nsecond\n"), 1):
        (path / "notes.md").write_text(text)
        git("add", "notes.md")
        git("commit", "-q", "-m", f"note {number}")
    (path / "notes.md").write_text("first\nsecond\nthird\n")


def wav():
    samples = bytes(range(0, 256, 8)) * 4
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8,
                         b"data", len(samples))
    return header + samples


def png():
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\x80\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")


class Page(BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 the base class names it
        found = self.path == "/page.html"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE if found else b"no such page")

    def log_message(self, *_):
        pass


def web():
    """Serves the page for as long as the process lives; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
