"""The two programs under test: the fixture server, and the gateway with nothing but the fixture behind it."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PATIENCE = 30


class Programs:
    def __init__(self, binary, fixture, upstream, era, folder):
        self.binary = (binary or newest("toolcrib")).resolve()
        self.server = (fixture or self.binary.parent / "toolcrib-fixture").resolve()
        if not self.server.exists():
            sys.exit("conformance: no toolcrib-fixture beside toolcrib; run `cargo build -p toolcrib-fixture`")
        self.upstream, self.era, self.folder = upstream, era, folder

    @contextmanager
    def fixture(self):
        """A fresh fixture over HTTP; the URL it is at."""
        command = [str(self.server), "--http", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            yield process.stdout.readline().strip()
        finally:
            end(process)

    @contextmanager
    def gateway(self):
        """A gateway with a fresh fixture; the URL of the endpoint that shows that one server as it is."""
        if self.upstream == "stdio":
            with serving(self.binary, {"command": str(self.server), "era": self.era}, self.folder) as url:
                yield url
        else:
            with self.fixture() as url, serving(self.binary, {"url": url, "era": self.era}, self.folder) as gateway:
                yield gateway


@contextmanager
def serving(binary, server, folder):
    home = folder / f"home-{time.monotonic_ns()}"
    home.mkdir()
    config = home / "toolcrib.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in server.items()]
    config.write_text("\n".join(["[servers.fixture]", *lines]))
    address = f"127.0.0.1:{free_port()}"
    with open(home / "gateway.log", "wb") as log:
        command = [str(binary), "serve", "--config", str(config), "--http", address]
        process = subprocess.Popen(command, env=environment(home), stdout=log, stderr=log)
    try:
        listening(process, address, home / "gateway.log")
        yield f"http://{address}/mcp/s/fixture"
    finally:
        end(process)


def environment(home):
    """A home of its own, so that nothing is remembered from before."""
    folders = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    return {"PATH": os.environ["PATH"], "HOME": str(home), **folders}


def newest(name):
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    built = [path for kind in ("release", "debug") if (path := target / kind / name).exists()]
    if not built:
        sys.exit(f"conformance: no {name} binary; build one with `cargo build`, or give --bin PATH")
    return max(built, key=lambda path: path.stat().st_mtime)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listening(process, address, log):
    host, port = address.split(":")
    end_of_patience = time.monotonic() + PATIENCE
    while time.monotonic() < end_of_patience:
        if process.poll() is not None:
            break
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"conformance: the gateway did not come up:\n{log.read_text()}")


def end(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
