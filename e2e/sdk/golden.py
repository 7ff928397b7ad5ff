"""Reads what the agent's tests keep: requests, and the streams they were answered with."""

import json
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "crates" / "toolcrib-agent" / "tests" / "wire" / "golden"
PROVIDERS = ("anthropic", "openai-responses", "openai-chat", "ollama")
STORIES = ("dispatch", "inject", "endings")


class Exchange:
    """A request, the stream it was answered with, and what the agent read in that."""

    def __init__(self, name, body, stream, read):
        self.name, self.body, self.stream, self.read = name, body, stream, read

    def events(self):
        """The data of each event or line."""
        lines = (line.removeprefix("data: ") for line in self.stream.splitlines())
        return [json.loads(line) for line in lines if line.startswith("{")]


def exchanges(provider, story):
    requests = json.loads((FOLDER / f"{provider}-{story}.json").read_text())
    streams = split((FOLDER / f"streams-{provider}-{story}.txt").read_text())
    names = [f"{request['conversation']}: {request['answered_with']}" for request in requests]
    assert names == [name for name, _, _ in streams], f"{provider}-{story}: requests and streams differ"
    before, found = {}, []
    for request, (name, stream, read) in zip(requests, streams):
        conversation = request["conversation"]
        before[conversation] = whole(request["body"], before.get(conversation, {}))
        found.append(Exchange(name, before[conversation], stream, read))
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
