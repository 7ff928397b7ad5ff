"""The client under test: a gateway over stdio, in front of the suite's server, driven as its scenario wants.

Called with the gateway's binary, a folder for its files, and, by the suite, the address of its server."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from queue import Empty, Queue

BINARY, FOLDER, URL = sys.argv[1:4]
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
VERSION = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
IS_STATELESS = VERSION >= "2026"
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}}
ANSWERED_WITHIN = 30
MOST_ROUNDS = 5
BROWSER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "browser.py")
# What the suite takes for this client's own document.
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"


class Refused(Exception):
    """The gateway answered with an error."""


class Gateway:
    """Speaks with the gateway, and answers what it asks."""

    def __init__(self):
        home = tempfile.mkdtemp(dir=FOLDER)
        config = os.path.join(home, "toolcrib.toml")
        with open(config, "w", encoding="utf-8") as file:
            era = "2026" if IS_STATELESS else "2025"
            file.write(f"[servers.tested]\nurl = {json.dumps(URL)}\nera = {json.dumps(era)}\n")
            file.writelines(f"oauth.{key} = {json.dumps(value)}\n" for key, value in oauth().items())
        command = [BINARY, "serve", "--stdio", "--endpoint", "s/tested", "--config", config, "--log", "info", "--login"]
        env = {"PATH": os.environ["PATH"], "HOME": home, "XDG_CACHE_HOME": home, "XDG_DATA_HOME": home}
        env["BROWSER"] = f"{sys.executable} -S {BROWSER}"
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.ids, self.answers = itertools.count(1), {}
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message and "id" in message:
                self.send({"id": message["id"], "result": answer(message["method"], message.get("params") or {})})
            elif message.get("id") in self.answers:
                self.answers[message["id"]].put(message)

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params=None):
        params = dict(params or {})
        if IS_STATELESS:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientInfo": {"name": "conformance-driver", "version": "1.0.0"},
                "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
            }
        number = next(self.ids)
        answers = self.answers[number] = Queue()
        self.send({"id": number, "method": method, "params": params})
        try:
            message = answers.get(timeout=ANSWERED_WITHIN)
        except Empty:
            raise Refused(f"{method}: no answer") from None
        if "error" in message:
            raise Refused(f"{method}: {message['error']}")
        return message["result"]

    def greet(self):
        if not IS_STATELESS:
            about = {"name": "conformance-driver", "version": "1.0.0"}
            self.ask("initialize", {"protocolVersion": VERSION, "capabilities": CAPABILITIES, "clientInfo": about})
            self.send({"method": "notifications/initialized"})

    def call(self, name, arguments):
        """Calls a tool; as often as it asks for input, with answers."""
        params = {"name": name, "arguments": arguments}
        for _ in range(MOST_ROUNDS):
            result = self.ask("tools/call", params)
            if result.get("resultType") != "input_required":
                return result
            asked = result.get("inputRequests") or {}
            params = {"name": name, "arguments": arguments}
            params["inputResponses"] = {key: answer(it["method"], it.get("params") or {}) for key, it in asked.items()}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise Refused(f"{name}: no end of questions")

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def oauth():
    """What a person would have been told by the authorization server."""
    if SCENARIO == "auth/pre-registration":
        return {"issuer": issuer(), **{key: CONTEXT[key] for key in ("client_id", "client_secret")}}
    if SCENARIO == "auth/basic-cimd":
        return {"client_metadata_url": CLIENT_DOCUMENT}
    return {}


def issuer():
    """The suite does not say it elsewhere."""
    parts = urllib.parse.urlsplit(URL)
    place = parts._replace(path=f"/.well-known/oauth-protected-resource{parts.path}").geturl()
    with urllib.request.urlopen(place, timeout=10) as document:
        return json.load(document)["authorization_servers"][0]


def answer(method, params):
    """What a person, a model and a workspace would say."""
    if method == "elicitation/create":
        properties = params.get("requestedSchema", {}).get("properties", {})
        return {"action": "accept", "content": {name: value(schema) for name, schema in properties.items()}}
    if method == "sampling/createMessage":
        said = {"type": "text", "text": "Yes."}
        return {"role": "assistant", "content": said, "model": "none", "stopReason": "endTurn"}
    if method == "roots/list":
        return {"roots": []}
    return {}


def value(schema):
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    samples = {"integer": 2, "number": 2, "boolean": True, "array": [], "object": {}, "null": None}
    return samples.get(schema.get("type"), "sample")


def calls(tools):
    """The calls a scenario wants, or else one of each tool."""
    if "toolCalls" in CONTEXT:
        return [(call["name"], call["arguments"]) for call in CONTEXT["toolCalls"]]
    if SCENARIO == "json-schema-2020-12-preservation":
        seen = next(tool["inputSchema"] for tool in tools if tool["name"] == "json_schema_2020_12_tool")
        return [("json_schema_echo", {"schema": seen})]
    if SCENARIO == "json-schema-ref-no-deref":
        return []
    wanted = []
    for tool in tools:
        properties = tool["inputSchema"].get("properties", {})
        required = tool["inputSchema"].get("required", [])
        wanted.append((tool["name"], {name: value(properties.get(name, {})) for name in required}))
    return wanted


def drive(gateway):
    gateway.greet()
    for name, arguments in calls(gateway.ask("tools/list")["tools"]):
        gateway.call(name, arguments)
    if SCENARIO == "http-standard-headers":
        for resource in gateway.ask("resources/list")["resources"]:
            gateway.ask("resources/read", {"uri": resource["uri"]})
        for prompt in gateway.ask("prompts/list")["prompts"]:
            gateway.ask("prompts/get", {"name": prompt["name"]})


def main():
    gateway = Gateway()
    try:
        drive(gateway)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        gateway.end()
    return 0


sys.exit(main())
