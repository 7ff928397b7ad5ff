"""What a client sends over HTTP, and what it reads."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections import namedtuple

VERSION = "2026-07-28"
Answer = namedtuple("Answer", "status headers text")


def send(url, body=None, headers=None):
    request = urllib.request.Request(url, body, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.headers, error.read().decode())


def document(url):
    answer = send(url)
    assert answer.status == 200, f"{url}: {answer.status} {answer.text}"
    return json.loads(answer.text)


def post_form(url, **form):
    return send(url, urllib.parse.urlencode(form).encode(), {"content-type": "application/x-www-form-urlencoded"})


def rpc(url, method, params=None, token=None):
    """One request of a client without a session."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "e2e", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {**(params or {}), "_meta": meta}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
    }
    if "name" in params:
        headers["mcp-name"] = params["name"]
    if token:
        headers["authorization"] = f"Bearer {token}"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return send(url, json.dumps(body).encode(), headers)
