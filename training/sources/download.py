"""Fetch pinned packages from PyPI and npm and unpack them under training/.cache.

A package that is already unpacked is not fetched again. Fetching runs nothing
of a package: wheels and tarballs are only opened. Needs the standard library alone.
"""

import hashlib
import html
import json
import re
import shutil
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"


def say(text: str) -> None:
    """Tells the person at the terminal what is going on."""
    print(text, file=sys.stderr, flush=True)


def unpack(archive: Path, folder: Path) -> None:
    """Opens a wheel, zip or tarball into a folder."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
    else:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")


def cached(kind: str, name: str, version: str, fetch) -> Path:
    """The unpacked folder of a package; `fetch(folder)` leaves its archive in a folder."""
    target = CACHE / kind / f"{name.replace('/', '+')}-{version}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        downloads, opened = Path(scratch, "archive"), Path(scratch, "opened")
        downloads.mkdir()
        opened.mkdir()
        fetch(downloads)
        archives = sorted(downloads.iterdir())
        if len(archives) != 1:
            raise RuntimeError(f"{name} {version}: expected one archive, found {len(archives)}")
        unpack(archives[0], opened)
        shutil.move(opened, target)
    say(f"fetched {kind} {name} {version}")
    return target


def get(url: str) -> bytes:
    """What an address holds; a failed request is tried three times."""
    for attempt in range(3):
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                return answer.read()
        except OSError as error:
            if attempt == 2 or isinstance(error, urllib.error.HTTPError) and error.code == 404:
                raise RuntimeError(f"{url}: {error}") from error
            time.sleep(2**attempt)


def preference(name: str) -> tuple[int, str]:
    """Pure wheels first, then those for Linux, then source archives, whatever the machine."""
    if name.endswith("none-any.whl"):
        return 0, name
    if name.endswith(".whl"):
        linux = "manylinux" in name and "x86_64" in name
        return (1 if linux and re.search("cp311-|abi3", name) else 2 if linux else 3), name
    return 4, name


def pypi(name: str, version: str) -> Path:
    """The unpacked wheel of a PyPI release, or its source archive where it has no wheel."""

    def fetch(folder: Path) -> None:
        page = f"https://pypi.org/simple/{re.sub('[-_.]+', '-', name).lower()}/"
        files = {}
        for link in re.findall(r'href="([^"]+)"', get(page).decode()):
            address, _, checksum = html.unescape(link).partition("#sha256=")
            file = address.rpartition("/")[2]
            if re.search(rf"-{re.escape(version)}(-.*\.whl|\.tar\.gz|\.tgz|\.zip)$", file):
                files[file] = urllib.parse.urljoin(page, address), checksum
        if not files:
            raise RuntimeError(f"no files on {page}")
        file = min(files, key=preference)
        address, checksum = files[file]
        data = get(address)
        if hashlib.sha256(data).hexdigest() != checksum:
            raise RuntimeError(f"{file}: wrong checksum")
        (folder / file).write_bytes(data)

    return cached("pypi", name, version, fetch)


def npm(name: str, version: str) -> Path:
    """The unpacked tarball of an npm release."""

    def fetch(folder: Path) -> None:
        page = f"https://registry.npmjs.org/{name.replace('/', '%2f')}/{version}"
        dist = json.loads(get(page))["dist"]
        data = get(dist["tarball"])
        if hashlib.sha1(data).hexdigest() != dist["shasum"]:
            raise RuntimeError(f"{name} {version}: wrong checksum")
        (folder / "package.tgz").write_bytes(data)

    return cached("npm", name, version, fetch)


def every(fetch, pins: dict[str, str], workers: int = 12) -> dict[str, Path]:
    """Fetches many pinned packages at once; one that fails is reported and left out."""

    def one(pin):
        try:
            return pin[0], fetch(*pin)
        except (RuntimeError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            say(f"left out {pin[0]} {pin[1]}: {error}")
            return pin[0], None

    with ThreadPoolExecutor(workers) as pool:
        return {name: path for name, path in pool.map(one, sorted(pins.items())) if path}
