"""Servers and SDKs, at the versions pinned beside this folder, into one cache folder."""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


class Installed:
    """Where the interpreters and packages are."""

    def __init__(self, cache):
        self.cache = cache
        self.node = shutil.which("node")
        self.node_modules = cache / "js" / "node_modules"

    def python(self, generation):
        """The interpreter that sees one generation of the Python SDK."""
        return str(self.cache / generation / "bin" / "python")

    def script(self, generation, name):
        """A Python server's own command."""
        return str(self.cache / generation / "bin" / name)

    def package(self, path):
        """A file of an npm package."""
        return str(self.node_modules / path)


def install(log):
    """Installs what is missing or was pinned differently, all parts at once."""
    cache = Path(os.environ.get("TOOLCRIB_E2E_CACHE") or HERE / ".cache").resolve()
    cache.mkdir(parents=True, exist_ok=True)
    if shutil.which("node") is None or shutil.which("npm") is None:
        sys.exit("e2e: node and npm (20 or newer) are needed on PATH")
    with ThreadPoolExecutor() as pool:
        parts = [pool.submit(npm, cache, log), pool.submit(pythons, cache, log)]
        for part in parts:
            part.result()
    return Installed(cache)


def npm(cache, log):
    pins = [HERE / "package.json", HERE / "package-lock.json"]
    folder = cache / "js"
    with Stamp(folder, pins) as fresh:
        if fresh:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for pin in pins:
            shutil.copy(pin, folder)
        log("installing npm packages")
        # No script of theirs runs: none of these packages needs one.
        shell(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)


def pythons(cache, log):
    for generation in ("mcp2", "mcp1"):
        pins = [HERE / f"requirements-{generation}.txt"]
        folder = cache / generation
        with Stamp(folder, pins) as fresh:
            if fresh:
                continue
            log(f"installing Python packages ({generation})")
            shutil.rmtree(folder, ignore_errors=True)
            shell([sys.executable, "-m", "venv", "--without-pip", str(folder)])
            requirements(cache, folder, pins[0])


def requirements(cache, folder, pins):
    """With uv, which takes seconds; with pip where uv does not get through."""
    tools = cache / "tools"
    if not (tools / "bin" / "uv").exists():
        shell([sys.executable, "-m", "venv", str(tools)])
        subprocess.run([tools / "bin" / "pip", "install", "-q", "uv==0.13.7"], check=False)
    python = str(folder / "bin" / "python")
    try:
        shell([str(tools / "bin" / "uv"), "pip", "install", "-q", "--python", python, "-r", str(pins)])
    except (OSError, SystemExit):
        shell([str(tools / "bin" / "pip"), "--python", python, "install", "-q", "-r", str(pins)])


class Stamp:
    """A part is fresh when the hash of its pins stands in its folder; it is written only after success."""

    def __init__(self, folder, pins):
        self.file = folder / ".pins"
        self.hash = hashlib.sha256(b"".join(pin.read_bytes() for pin in pins)).hexdigest()

    def __enter__(self):
        return self.file.exists() and self.file.read_text() == self.hash

    def __exit__(self, kind, *_):
        if kind is None:
            self.file.write_text(self.hash)


def shell(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise SystemExit(f"e2e: {' '.join(command[:3])} … failed:\n{done.stdout[-4000:]}")
