"""A client that knows nothing but the address of a server, and finds out the rest."""

import base64
import hashlib
import json
import re
import secrets
import urllib.error
import urllib.parse
import urllib.request

from .wire import document, post_form, rpc, send

CALLBACK = "http://127.0.0.1/callback"


def challenge(answer):
    """What a refusal says of the token that is wanted."""
    how = answer.headers["www-authenticate"]
    assert how and how.startswith("Bearer "), how
    return dict(re.findall(r'(\w+)="([^"]*)"', how))


def walk(url):
    """From the refusal of a server to a token for it."""
    refused = rpc(url, "tools/list")
    assert refused.status == 401, refused
    said = challenge(refused)
    about = document(said["resource_metadata"])
    assert about["resource"] == url, about
    [issuer] = about["authorization_servers"]
    assert set(said["scope"].split()) <= set(about["scopes_supported"]), (said, about)
    return log_in(issuer, url, said["scope"])


def log_in(place, resource, scope):
    """A token of an authorization server: registered, with a person's yes, by a code and its proof."""
    about = document(f"{place}/.well-known/openid-configuration")
    client = {
        "redirect_uris": [CALLBACK],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code"],
        "response_types": ["code"],
    }
    registered = send(about["registration_endpoint"], json.dumps(client).encode(), {"content-type": "application/json"})
    assert registered.status == 201, registered
    client_id = json.loads(registered.text)["client_id"]
    verifier, state = secrets.token_urlsafe(32), secrets.token_urlsafe(16)
    proof = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": CALLBACK,
        "state": state,
        "scope": scope,
        "resource": resource,
        "code_challenge": proof,
        "code_challenge_method": "S256",
    }
    back = browse(f"{about['authorization_endpoint']}?{urllib.parse.urlencode(query)}")
    assert back.get("state") == state and back.get("iss") == about["issuer"] and "code" in back, back
    given = post_form(
        about["token_endpoint"],
        grant_type="authorization_code",
        code=back["code"],
        redirect_uri=CALLBACK,
        code_verifier=verifier,
        client_id=client_id,
        resource=resource,
    )
    assert given.status == 200, given
    return Token(json.loads(given.text)["access_token"], client_id, about["revocation_endpoint"])


class Token(str):
    """An access token, which can be revoked."""

    def __new__(cls, text, client_id, endpoint):
        token = super().__new__(cls, text)
        token.client_id, token.endpoint = client_id, endpoint
        return token

    def revoke(self):
        answer = post_form(self.endpoint, token=str(self), client_id=self.client_id)
        assert answer.status == 200, answer


class Arrived(Exception):
    """The browser was sent back to the client."""


class Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request, file, code, message, headers, url):
        if url.startswith(CALLBACK):
            raise Arrived(url)
        return super().redirect_request(request, file, code, message, headers, url)


def browse(url):
    """A browser whose person says yes; what it brings back."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), Redirects())
    try:
        with browser.open(url, timeout=30) as page:
            raise AssertionError(f"the login ended at {page.url}")
    except Arrived as arrived:
        return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(str(arrived)).query))
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.code} {error.read().decode()}") from None
