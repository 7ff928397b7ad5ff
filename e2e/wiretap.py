"""Runs a stdio server and writes down every line that passes, in both directions: `wiretap.py LOG COMMAND…`."""

import os
import subprocess
import sys
import threading

log = open(sys.argv[1], "ab", buffering=0)
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def pump(source, sink, mark):
    pending = b""
    while data := os.read(source, 1 << 16):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            log.write(mark + line + b"\n")
        while data:
            data = data[os.write(sink, data) :]


def inward():
    try:
        pump(0, server.stdin.fileno(), b"> ")
    except OSError:
        pass
    server.stdin.close()


threading.Thread(target=inward, daemon=True).start()
pump(server.stdout.fileno(), 1, b"< ")
sys.exit(server.wait())
