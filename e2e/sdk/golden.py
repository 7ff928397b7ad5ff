"""Reads what the agent's tests keep: requests, and the streams they were answered with."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "crates" / "toolcrib-agent" / "tests" / "wire" / "golden"
PROVIDERS = {"/v1/messages": "anthropic", "/v1/responses": "openai-responses",
             "/v1/chat/completions": "openai-chat", "/api/chat": "ollama"}
# By provider. A story that goes from one to another is with the one it begins at.
STORIES = [path.stem for each in PROVIDERS.values() for path in sorted(FOLDER.glob(f"{each}-*.json"))]


class Exchange:
    """A request, the stream it was answered with, and what the agent read in that. Of some only the request is kept."""

    def __init__(self, provider, name, body, stream, read):
        self.provider, self.name, self.body, self.stream, self.read = provider, name, body, stream, read

    def events(self):
        """The data of each event or line."""
        lines = (line.removeprefix("data: ") for line in self.stream.splitlines())
        return [json.loads(line) for line in lines if line.startswith("{")]


def exchanges(story):
    requests = json.loads((FOLDER / f"{story}.json").read_text())
    names = [f"{request['conversation']}: {request['answered_with']}" for request in requests]
    streams = FOLDER / f"streams-{story}.txt"
    streams = split(streams.read_text()) if streams.exists() else [(name, None, None) for name in names]
    assert names == [name for name, _, _ in streams], f"{story}: requests and streams differ"
    before, found = {}, []
    for request, (name, stream, read) in zip(requests, streams):
        place = request["conversation"], request["path"]
        before[place] = whole(request["body"], before.get(place, {}))
        found.append(Exchange(PROVIDERS[request["path"]], name, before[place], stream, read))
    return found


def whole(body, previous):
    """Puts elements back that are not repeated: "= 0..4" are the first four of the request before."""
    def elements(name, values):
        for value in values:
            if isinstance(value, str) and value.startswith("= "):
                first, end = value[2:].split("..")
                yield from previous[name][int(first):int(end)]
            else:
                yield value
    return {name: list(elements(name, value)) if isinstance(value, list) else value for name, value in body.items()}


def split(text):
    """The parts of a file of streams: name, stream, what was read."""
    found = []
    for part in ("\n" + text).split("\n--- ")[1:]:
        head, _, rest = part.partition("\n")
        if head == "read as":
            found[-1][2] = json.loads(rest)
        else:
            found.append([head, rest + "\n", None])
    return found
