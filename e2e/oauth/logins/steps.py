"""What is tried, each with programs and servers of its own."""

import time

from .scene import TOOL, at_once

WORKS = "simple text response"


def works(said):
    assert WORKS in said, said


def works_soon(call):
    """A server that was in trouble is tried again after a while."""
    patience = time.monotonic() + 20
    while WORKS not in (said := call()) and time.monotonic() < patience:
        time.sleep(0.5)
    works(said)


def login(scene):
    """a login brings a token for this server alone, kept for its owner alone"""
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code != 0 and "run `toolcrib login tested`" in said, said
    gateway = scene.gateway()
    said = gateway()
    assert WORKS not in said, said
    scene.log_in()
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code == 0 and WORKS in said, said
    assert scene.login()["resource"] == scene.resource
    assert scene.file.stat().st_mode & 0o777 == 0o600
    assert scene.file.parent.stat().st_mode & 0o777 == 0o700
    # A gateway that runs sees it without being started anew, once it tries again.
    works_soon(gateway)
    seen = scene.told()
    assert (seen["registered"], seen["logins"]) == (1, 1), seen


def by_the_gateway(scene):
    """a gateway that may ask logs in by itself, once"""
    gateway = scene.gateway("--login")
    works_soon(gateway)
    for said in at_once([gateway] * 8):
        works(said)
    assert scene.told()["logins"] == 1, scene.told()


def expiry(scene):
    """tokens of two seconds are renewed in time, each refresh token used once"""
    scene.told(lifetime=2)
    scene.log_in()
    gateway, refresh = scene.gateway(), set()
    for _ in range(14):
        works(gateway())
        refresh.add(scene.login()["refresh_token"])
        time.sleep(0.5)
    seen = scene.told()
    assert seen["refused"] == 0 and 3 <= seen["renewed"] <= 8, seen
    assert len(refresh) >= 3, "they are not rotated"
    return f"({seen['renewed']} in 7 s)"


def concurrent(scene):
    """twenty callers, and then twenty in each of two programs, renew a login once"""
    scene.told(lifetime=2)
    scene.log_in()
    one, other = scene.gateway(), scene.gateway()
    works(one())
    works(other())
    for calls in [one] * 20, [one] * 20 + [other] * 20:
        time.sleep(2.5)
        scene.told(lifetime=60)
        before = scene.told()["renewed"]
        for said in at_once(calls):
            works(said)
        seen = scene.told()
        assert seen["renewed"] - before == 1 and seen["refused"] == 0, (before, seen)
        # The next round begins with a token that ends soon.
        scene.told(lifetime=2)
        scene.log_in()
        works(one())
        works(other())


def revocation(scene):
    """a login that was revoked is forgotten, and the reason says what to run"""
    scene.told(lifetime=2)
    scene.log_in()
    gateway = scene.gateway()
    works(gateway())
    scene.told(revoke=1)
    time.sleep(2.5)
    said = gateway()
    assert "run `toolcrib login tested`" in said, said
    assert scene.login() is None
    scene.log_in()
    works_soon(gateway)


def unwritable(scene):
    """a renewed login that can't be written holds in memory, and is written when it can be"""
    scene.told(lifetime=2)
    scene.log_in()
    gateway, before = scene.gateway(), scene.login()["refresh_token"]
    works(gateway())
    # Nothing can be written where a folder is in the way.
    obstacle = scene.file.with_name(scene.file.name + ".new")
    obstacle.mkdir()
    for _ in range(6):
        time.sleep(1)
        works(gateway())
    assert scene.told()["renewed"] >= 2 and scene.login()["refresh_token"] == before, scene.told()
    obstacle.rmdir()
    patience = time.monotonic() + 20
    while scene.login()["refresh_token"] == before and time.monotonic() < patience:
        time.sleep(0.2)
    time.sleep(2.5)
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code == 0, said
    works(said)
    seen = scene.told()
    assert (seen["logins"], seen["refused"]) == (1, 0), seen


def wrong_audience(scene):
    """tokens for another server are refused, and nobody is asked again and again"""
    scene.told(audience="https://elsewhere.example/mcp")
    gateway = scene.gateway("--login")
    for _ in range(10):
        said = gateway()
        assert WORKS not in said, said
        time.sleep(0.5)
    seen = scene.told()
    assert seen["logins"] == 1 and seen["calls"] == 0, seen
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code != 0 and "it refuses its login: run `toolcrib login tested`" in said, said


def logout(scene):
    """a logout ends the login here and at the authorization server"""
    scene.log_in()
    before = scene.told()["revoked"]
    code, said = scene.run("logout", "tested")
    assert code == 0, said
    assert scene.login() is None
    assert scene.told()["revoked"] > before
    code, said = scene.run("call", f"tested__{TOOL}")
    assert code != 0 and "run `toolcrib login tested`" in said, said


STEPS = [login, by_the_gateway, expiry, concurrent, unwritable, revocation, wrong_audience, logout]
