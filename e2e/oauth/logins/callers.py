"""What callers of a gateway try that takes the tokens of an authorization server, each with programs of its own."""

import json
import time

from .client import challenge, log_in, walk
from .scene import OWN_TOKEN, TOOL
from .steps import works

ALL = "mcp mcp:all"
HIDDEN = "test_image_content"


def tools(scene, url, token, wanted=TOOL):
    """The names of what is listed, once the server of the wanted one has started."""
    patience = time.monotonic() + 20
    while True:
        listed = scene.ask(url, "tools/list", token=token)
        assert listed.status == 200, listed
        names = [tool["name"] for tool in json.loads(listed.text)["result"]["tools"]]
        if any(name.endswith(wanted) for name in names) or time.monotonic() > patience:
            return names
        time.sleep(0.2)


def refused(scene, url, token, why):
    """That a token is, and in what words."""
    answer = scene.ask(url, "tools/list", token=token)
    said = challenge(answer)
    assert (answer.status, said["error"]) == (401, "invalid_token"), answer
    assert why in said["error_description"], said
    assert "resource_metadata" in said, said


def discovery(scene):
    """without a token: refused, led to the metadata, to the issuer's, to a login, and in"""
    gate = scene.guarded()
    for endpoint, wanted in ("/mcp", "tool_search"), ("/mcp/full", f"tested__{TOOL}"), ("/mcp/s/tested", TOOL):
        token = walk(gate + endpoint)
        names = tools(scene, gate + endpoint, token, wanted)
        assert wanted in names, names
    works(scene.ask(gate + "/mcp/s/tested", "tools/call", {"name": TOOL, "arguments": {}}, token).text)
    assert scene.ask(gate + "/mcp", "tools/list").status == 401


def by_toolcrib(scene):
    """`toolcrib login` is led the same way, and calls through"""
    gate = scene.guarded()
    scene.config.write_text(f"[servers.tested]\nurl = {json.dumps(gate + '/mcp/s/tested')}\n")
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code != 0 and "run `toolcrib login tested`" in said, said
    scene.log_in()
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code == 0, said
    works(said)


def audience(scene):
    """a token for somebody else, or for another endpoint, is refused"""
    url = scene.guarded() + "/mcp/full"
    scene.told(audience="https://elsewhere.example/mcp")
    refused(scene, url, log_in(scene.issuer, url, ALL), "it is for somebody else")
    scene.told(audience="")
    one = log_in(scene.issuer, url.replace("/full", "/s/tested"), ALL)
    refused(scene, url, one, "it is for somebody else")
    assert tools(scene, url.replace("/full", "/s/tested"), one)


def expired(scene):
    """a token that has expired is refused, and one that expires meanwhile"""
    url = scene.guarded() + "/mcp/full"
    assert tools(scene, url, log_in(scene.issuer, url, ALL))
    scene.told(clock=-7200)
    refused(scene, url, log_in(scene.issuer, url, ALL), "it has expired")
    # Clocks may differ by a minute: it holds for a few seconds more.
    scene.told(clock=-60, lifetime=8)
    token, made = log_in(scene.issuer, url, ALL), time.monotonic()
    assert tools(scene, url, token)
    time.sleep(max(0, made + 10 - time.monotonic()))
    refused(scene, url, token, "it has expired")


def issuers(scene):
    """tokens of another issuer or of other keys are refused, and its own is asked for keys no more than twice"""
    url = scene.guarded() + "/mcp/full"
    good = log_in(scene.issuer, url, ALL)
    assert tools(scene, url, good)
    for kind, why in {
        "stranger": "its key is not the issuer's",
        "kin": "it is another issuer's",
        "namesake": "its signature is wrong",
    }.items():
        token = log_in(scene.told(impostor=kind)["impostor"], url, ALL)
        for _ in range(20):
            refused(scene, url, token, why)
    assert scene.told()["keys"] == 2, scene.told()["keys"]
    assert tools(scene, url, good)


def rotation(scene):
    """keys are rotated: the new one is fetched when it first comes, once a minute at most"""
    url = scene.guarded() + "/mcp/full"
    old = log_in(scene.issuer, url, ALL)
    assert tools(scene, url, old)
    assert tools(scene, url, old) and scene.told()["keys"] == 1
    scene.told(rotate="second")
    new = log_in(scene.issuer, url, ALL)
    assert tools(scene, url, old), "nobody knows yet"
    assert tools(scene, url, new)
    refused(scene, url, old, "its key is not the issuer's")
    assert scene.told()["keys"] == 2, scene.told()["keys"]
    scene.told(rotate="third")
    third = log_in(scene.issuer, url, ALL)
    for _ in range(10):
        refused(scene, url, third, "its key is not the issuer's")
    assert tools(scene, url, new)
    assert scene.told()["keys"] == 2, scene.told()["keys"]


def lacking(scene):
    """a token that lacks a scope gets 403 with what to ask for, and then gets in"""
    url = scene.guarded() + "/mcp/full"
    for scope in "read", "mcp", "mcp:all":
        answer = scene.ask(url, "tools/list", token=log_in(scene.issuer, url, scope))
        said = challenge(answer)
        assert (answer.status, said["error"]) == (403, "insufficient_scope"), answer
        assert set(said["scope"].split()) == {"mcp", "mcp:text", "mcp:all"}, said
        assert "resource_metadata" in said, said
    assert tools(scene, url, log_in(scene.issuer, url, said["scope"]))


def hiding(scene):
    """a scope hides a tool: it is not listed, not found, and can't be called"""
    gate = scene.guarded()
    url = gate + "/mcp/full"
    some, every = (log_in(scene.issuer, url, scope) for scope in ("mcp mcp:text", ALL))
    for server in "tested", "bare":
        name = f"{server}__{HIDDEN}"
        assert name in tools(scene, url, every, name)
    shown = tools(scene, url, some)
    assert shown == [f"tested__{TOOL}"], shown

    def called(name, token):
        return scene.ask(url, "tools/call", {"name": name, "arguments": {}}, token).text

    works(called(f"tested__{TOOL}", some))
    assert "error" not in json.loads(called(f"tested__{HIDDEN}", every))
    for name in HIDDEN, "test_nothing_at_all":
        said = called(f"tested__{name}", some)
        assert "Unknown tool" in said, said

    def found(scope):
        search = {"name": "tool_search", "arguments": {"query": f"select:tested__{HIDDEN}"}}
        return scene.ask(gate + "/mcp", "tools/call", search, log_in(scene.issuer, gate + "/mcp", scope)).text

    assert "Returns an image" in found(ALL), found(ALL)
    assert "Returns an image" not in found("mcp mcp:text"), found("mcp mcp:text")
    return f"({len(tools(scene, url, every))} tools with one scope, {len(tools(scene, url, some))} with the other)"


def opaque(scene):
    """a token that can't be read here is refused: of the issuer, revoked, or made up"""
    url = scene.guarded() + "/mcp/full"
    assert tools(scene, url, log_in(scene.issuer, url, ALL))
    scene.told(format="opaque")
    token = log_in(scene.issuer, url, ALL)
    assert token.count(".") == 0, token
    refused(scene, url, token, "it can't be read")
    token.revoke()
    refused(scene, url, token, "it can't be read")
    refused(scene, url, "made-up", "it can't be read")


def upstream(scene):
    """nothing of a caller's token reaches a server, which gets its own or none"""
    gate = scene.guarded()
    for endpoint, name in ("/mcp/full", f"tested__{TOOL}"), ("/mcp/full", f"bare__{TOOL}"), ("/mcp/s/bare", TOOL):
        token = log_in(scene.issuer, gate + endpoint, ALL)
        assert name in tools(scene, gate + endpoint, token, name)
        works(scene.ask(gate + endpoint, "tools/call", {"name": name, "arguments": {}}, token).text)
    seen = scene.told()
    assert sum("tools/call" in passed["body"] for passed in seen["passed"]) == 3, seen["passed"]
    for passed in seen["passed"]:
        pairs = [(name.lower(), value) for name, value in zip(passed["headers"][::2], passed["headers"][1::2])]
        own = [] if passed["path"].endswith("/bare") else [f"Bearer {OWN_TOKEN}"]
        assert [value for name, value in pairs if name == "authorization"] == own, pairs
        text = json.dumps(passed)
        assert not any(part in text for token in seen["tokens"] for part in token.split(".") if part), passed
        assert "ada" not in text, passed
    return f"({len(seen['passed'])} requests looked at)"


STEPS = [discovery, by_toolcrib, audience, expired, issuers, rotation, lacking, hiding, opaque, upstream]
