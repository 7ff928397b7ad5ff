"""Checks the requests and streams of the agent's wire tests with the official SDKs. Needs no network and no key.

For every request: it fits the SDK's request type with nothing unknown in it, and the SDK's client, given the same,
sends the same. For every stream: each event fits the SDK's type for it, and the SDK's client makes of the whole what
the agent did. Then everything is broken on purpose, to see that it would be noticed.
"""

import copy
import json
import sys
import time
from importlib.metadata import version

import strict
from golden import PROVIDERS, STORIES, exchanges
from clients import Replay, parse, without_what_types_lack

PACKAGES = {"anthropic": "anthropic", "openai-responses": "openai", "openai-chat": "openai", "ollama": "ollama"}


def comparable(provider, read):
    """What the agent read, with the arguments of calls as values, which SDKs write in other ways, and without what the
    SDK has no place for."""
    read = without_what_types_lack(provider, copy.deepcopy(read))
    read["content"] = [said for said in read["content"] if said.get("json") != {}]
    for said in read["content"]:
        if said["type"] == "call":
            said["arguments"] = json.loads(said["arguments"])
    return read


def request_fits(exchange, _):
    provider = exchange.provider
    strict.VALIDATORS[provider](without_what_types_lack(provider, exchange.body))


def client_sends_the_same(exchange, replay):
    provider = exchange.provider
    sent, body = replay.ask(exchange)[0], exchange.body
    if provider == "ollama":
        # Its client leaves out empty members, and of schemas what its types leave out.
        pairs = zip(sent.get("tools", []), body.get("tools", []), strict=True)
        assert all(strict.within(one, other) for one, other in pairs), "other tools"
        sent, body = lean(sent), lean(body)
    assert sent == body, f"the SDK sends {json.dumps(sent)}"


def lean(body):
    messages = [{name: value for name, value in message.items() if value} for message in body["messages"]]
    return {name: value for name, value in body.items() if name != "tools"} | {"messages": messages}


def events_fit(exchange, _):
    for event in exchange.events():
        unknown = parse(exchange.provider, event)
        assert not unknown, f"unknown members {sorted(unknown)} in {json.dumps(event)}"


def client_reads_the_same(exchange, replay):
    _, read = replay.ask(exchange)
    expected = comparable(exchange.provider, exchange.read)
    assert read == expected, f"the SDK reads {json.dumps(read)}, the agent {json.dumps(expected)}"


CHECKS = {
    "request fits its type": request_fits,
    "SDK sends the same": client_sends_the_same,
    "events fit their types": events_fit,
    "SDK reads the same": client_reads_the_same,
}


# Those that need to know what a request was answered with.
OF_STREAMS = (events_fit, client_reads_the_same)


def failure(check, exchange, replay):
    try:
        check(exchange, replay)
    except Exception as error:  # noqa: BLE001 whatever an SDK raises is a failure
        return f"{type(error).__name__}: {error}"[:1000]
    return None


def conversation(body):
    return body["input" if "input" in body else "messages"]


def last_result(body):
    """The last result of a tool in a conversation."""
    for message in reversed(conversation(body)):
        if message.get("role") == "tool" or message.get("type") == "function_call_output":
            return message
        for block in message["content"] if isinstance(message.get("content"), list) else []:
            if block["type"] == "tool_result":
                return block
    raise LookupError("no result of a tool")


def function(body):
    return body["tools"][0].get("function", body["tools"][0])


# What is done to a request.
MISTAKES = {
    "an unknown member": lambda body: body.update(max_token=1),
    "a missing model": lambda body: body.pop("model"),
    "a model that is a number": lambda body: body.update(model=7),
    "an unknown member of a message": lambda body: conversation(body)[0].update(text="x"),
    "an unknown member of a tool": lambda body: function(body).update(input="x"),
    "a tool's name that is a number": lambda body: function(body).update(name=7),
    "an unknown member of a result": lambda body: last_result(body).update(tool="x"),
    "a result without its id": lambda body: [last_result(body).pop(key, None) for key in ID_KEYS],
    "an unknown role": lambda body: conversation(body)[0].update(role="robot"),
}
ID_KEYS = ("tool_use_id", "call_id", "tool_call_id")
# What the types allow: a stored prompt may name the model, a result may go without an id, any role will do.
ALLOWED = {
    "openai-responses": ("a missing model", "a result without its id"),
    "ollama": ("a result without its id", "an unknown role"),
}

# What is done to a stream, by the text that is replaced; and which check must notice.
DAMAGE = {
    "a piece of text that is another": client_reads_the_same,
    "a count that is another": client_reads_the_same,
    "an unknown kind": events_fit,
    "a number that is a word": events_fit,
    "an unknown member of an event": events_fit,
}
PLACES = {
    "anthropic": ("I'll look for ", '"input_tokens":11,', '"type":"text_delta"', '"index":0', '{"type":"text_delta",'),
    "openai-responses": ("I'll look for ", '"cached_tokens":1000,', '"type":"response.output_text.delta"',
                         '"output_index":0', '{"type":"response.output_text.delta",'),
    "openai-chat": ("I'll look for ", '"cached_tokens":1000,', '"object":"chat.completion.chunk"',
                    '"created":1790000000', '{"index":0,"delta":'),
    "ollama": ("I'll look for ", '"prompt_eval_count":11,', '"role":"assistant"', '"eval_count":1', '{"role":'),
}


def find(value, **members):
    """Something with these members, at any depth of a body."""
    if isinstance(value, dict) and all(value.get(name) == wanted for name, wanted in members.items()):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, (find(each, **members) for each in inner)), None)


# What is done to a request in which tools wait.
NATIVE_MISTAKES = {
    "anthropic": {
        "an unknown member of a reference": lambda body: find(body, type="tool_reference").update(id="x"),
        "a reference without a name": lambda body: find(body, type="tool_reference").pop("tool_name"),
        "a tool that waits for a word": lambda body: find(body, defer_loading=True).update(defer_loading="yes"),
        "a removal of a name": lambda body: find(body, type="tool_removal").update(tool="x"),
        "an unknown member of a removal": lambda body: find(body, type="tool_removal").update(name="x"),
    },
    "openai-responses": {
        "a search that nobody makes": lambda body: find(body, type="tool_search").update(execution="nobody"),
        "a search's output without tools": lambda body: find(body, type="tool_search_output").pop("tools"),
        "an unknown member of a search": lambda body: find(body, type="tool_search_call").update(name="x"),
        "a namespace without a description": lambda body: find(body, type="namespace").pop("description"),
        "tools from a user": lambda body: find(body, type="additional_tools").update(role="user"),
        "a namespace that is a number": lambda body: find(body, namespace="github").update(namespace=7),
    },
}


def self_test(provider, replay):
    """Breaks exchanges in every way; says which ways were not noticed, and how many there were."""
    story, broken = exchanges(f"{provider}-dispatch"), []
    for name, mistake in NATIVE_MISTAKES.get(provider, {}).items():
        exchange = copy.deepcopy(exchanges(f"{provider}-native")[-1])
        mistake(exchange.body)
        broken.append((name, request_fits, exchange))
    for name, mistake in MISTAKES.items():
        if name in ALLOWED.get(provider, ()):
            continue
        exchange = copy.deepcopy(story[1])
        mistake(exchange.body)
        broken.append((name, request_fits, exchange))
    for (name, check), place in zip(DAMAGE.items(), PLACES[provider]):
        exchange = copy.deepcopy(story[0])
        assert place in exchange.stream, f"{place} is not in the stream"
        exchange.stream = exchange.stream.replace(place, damaged(name, place), 1)
        broken.append((name, check, exchange))
    missed = [name for name, check, exchange in broken if failure(check, exchange, replay) is None]
    return missed, len(broken)


def damaged(name, place):
    member, _, value = place.rpartition(":")
    return {
        "a piece of text that is another": place.upper(),
        "a count that is another": f"{member}:7,",
        "an unknown kind": f"{member}:17",
        "a number that is a word": f'{member}:"many"',
        "an unknown member of an event": place.replace("{", '{"new":1,', 1),
    }[name]


def main():
    began = time.monotonic()
    replay, failures = Replay(), []
    width, first = max(map(len, CHECKS)) + 2, max(map(len, STORIES)) + 2
    sums = dict.fromkeys(CHECKS, 0)
    print(" " * first + "".join(f"{name:>{width}}" for name in CHECKS))
    for name in STORIES:
        story = exchanges(name)
        cells = []
        for what, check in CHECKS.items():
            those = [it for it in story if it.stream or check not in OF_STREAMS]
            bad = [(it.name, why) for it in those if (why := failure(check, it, replay))]
            failures += [f"{name}, {it}, {what}: {why}" for it, why in bad]
            sums[what] += len(those) - len(bad)
            cells.append(f"{len(those) - len(bad)} of {len(those)}" if those else "")
        print(f"{name:{first}}" + "".join(f"{cell:>{width}}" for cell in cells))
    print(f"{'all':{first}}" + "".join(f"{cell:>{width}}" for cell in sums.values()))
    for provider in PROVIDERS.values():
        missed, tried = self_test(provider, replay)
        failures += [f"{provider}: {name} was not noticed" for name in missed]
        package = PACKAGES[provider]
        print(f"{provider:{first}}broken on purpose: {tried - len(missed)} of {tried} noticed ({package} {version(package)})")
    print(f"{time.monotonic() - began:.1f} s")
    for line in failures[-20:]:
        print(f"FAILED {line}", file=sys.stderr)
    if len(failures) > 20:
        print(f"and {len(failures) - 20} more before these", file=sys.stderr)
    return 1 if failures else 0


sys.exit(main())
