"""The SDKs' own clients, asked what the agent asked, and answered what it was answered."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import strict  # before the SDKs
import anthropic
import ollama
import openai
from anthropic.types import RawMessageStreamEvent
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from golden import exchanges

NOT_IN_TYPES = {
    # vLLM, llama.cpp and others tell what a model thinks, and may want it back; OpenAI does not.
    "openai-chat": {"reasoning_content"},
}


def without_what_types_lack(provider, value):
    """The same without members that only compatible servers know, at any depth."""
    lacking = NOT_IN_TYPES.get(provider, set())
    if isinstance(value, dict):
        return {name: without_what_types_lack(provider, each) for name, each in value.items() if name not in lacking}
    if isinstance(value, list):
        return [without_what_types_lack(provider, each) for each in value]
    return value

# The agent's words for why an answer ended.
STOPS = {
    **dict.fromkeys(["end_turn", "tool_use", "completed", "stop", "tool_calls"], "end"),
    **dict.fromkeys(["max_tokens", "max_output_tokens", "length"], "length"),
}

EVENTS = {
    "anthropic": TypeAdapter(RawMessageStreamEvent),
    "openai-responses": TypeAdapter(ResponseStreamEvent),
    "openai-chat": TypeAdapter(ChatCompletionChunk),
    "ollama": TypeAdapter(ollama.ChatResponse),
}


def parse(provider, event):
    """Reads one event with the SDK's type for it; says which members it does not know."""
    if event == {"type": "ping"}:  # A sign of life, which the SDK passes over.
        return set()
    parsed = EVENTS[provider].validate_json(json.dumps(event), strict=True)
    if provider == "ollama":
        kept = parsed.model_dump(exclude_unset=True)
        assert kept == event, f"an event is read as {kept}, and was {event}"
    return unknown(parsed) - NOT_IN_TYPES.get(provider, set())


def unknown(value):
    """Members that a model took without knowing them, at any depth."""
    if isinstance(value, BaseModel):
        known = [unknown(getattr(value, name)) for name in type(value).model_fields]
        return set(value.model_extra or {}).union(*known)
    if isinstance(value, (list, tuple)):
        return set().union(*map(unknown, value))
    if isinstance(value, dict):
        return set().union(*map(unknown, value.values()))
    return set()


class Replay:
    """A server that answers with one stream, and keeps what it was sent."""

    def __init__(self):
        replay = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                replay.sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stream = replay.stream.encode()
                self.send_response(200)
                self.send_header("content-type", replay.content_type)
                self.send_header("content-length", str(len(stream)))
                self.end_headers()
                self.wfile.write(stream)

            def log_message(self, *_):
                pass

        # The server is here, whatever proxy the machine has.
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{self.server.server_port}"
        none = {"api_key": "none", "max_retries": 0}
        self.anthropic = anthropic.Anthropic(base_url=base, **none)
        self.openai = openai.OpenAI(base_url=f"{base}/v1", **none)
        self.ollama = ollama.Client(base)
        self.sent = None

    def ask(self, exchange):
        """What the SDK's client sends for the agent's request, and what it makes of the answer: of any, if that is not
        kept."""
        provider = exchange.provider
        self.stream = exchange.stream or exchanges(f"{provider}-dispatch")[0].stream
        self.content_type = "application/x-ndjson" if provider == "ollama" else "text/event-stream"
        read = getattr(self, "_" + provider.replace("-", "_"))(dict(exchange.body))
        return self.sent, read

    def _anthropic(self, body):
        del body["stream"]  # It always does.
        client = self.anthropic.beta if strict.changes_tools(body) else self.anthropic
        with client.messages.stream(**body) as stream:
            message = stream.get_final_message()
        content = []
        for block in message.content:
            if block.type == "text":
                content.append(text(block.text))
            elif block.type == "tool_use":
                content.append(call(block.id, block.name, block.input))
            else:
                content.append(native("anthropic", block.model_dump(exclude_unset=True)))
        usage = message.usage
        stop = message.stop_reason
        if stop == "refusal":
            stop = f"refusal: {message.stop_details.explanation}"
        return read(content, STOPS.get(stop, stop), usage.cache_read_input_tokens,
                    usage.cache_creation_input_tokens, usage.input_tokens, usage.output_tokens)

    def _openai_responses(self, body):
        told, last = {}, None
        for last in self.openai.responses.create(**body):
            if last.type.endswith(("_text.delta", "arguments.delta", "refusal.delta")):
                told[last.output_index] = told.get(last.output_index, "") + last.delta
        response, content = last.response, []
        stop = response.incomplete_details.reason if response.incomplete_details else response.status
        for place, item in enumerate(response.output):
            if item.type == "message" and item.content[0].type == "refusal":
                assert told[place] == item.content[0].refusal
                stop = f"refusal: {item.content[0].refusal}"
            elif item.type == "message":
                content.append(text(item.content[0].text))
                assert told[place] == item.content[0].text
            elif item.type == "tool_search_call" and item.execution == "client":
                content.append(call(item.call_id, "tool_search", item.arguments))
                assert place not in told
            elif item.type == "function_call":
                # The agent keeps where a tool lives before the call.
                if item.namespace:
                    content.append(native("openai-responses", {"namespace": item.namespace}))
                content.append(call(item.call_id, item.name, json.loads(item.arguments)))
                assert told[place] == item.arguments
            else:
                content.append(native("openai-responses", item.model_dump(exclude_unset=True)))
                assert item.type != "reasoning" or told[place] == item.summary[0].text
        usage = response.usage
        details = usage.input_tokens_details
        cached, written = details.cached_tokens, details.cache_write_tokens
        return read(content, STOPS.get(stop, stop), cached, written,
                    usage.input_tokens - cached - written, usage.output_tokens)

    def _openai_chat(self, body):
        state = ChatCompletionStreamState()
        for chunk in self.openai.chat.completions.create(**body):
            state.handle_chunk(chunk)
        completion = state.current_completion_snapshot
        choice = completion.choices[0]
        content = [text(choice.message.content)] if choice.message.content else []
        for made in choice.message.tool_calls or []:
            content.append(call(made.id, made.function.name, json.loads(made.function.arguments)))
        usage, details = completion.usage, completion.usage.prompt_tokens_details
        cached, written = details.cached_tokens, details.cache_write_tokens
        stop = f"refusal: {choice.message.refusal}" if choice.message.refusal else choice.finish_reason
        return read(content, STOPS.get(stop, stop), cached, written,
                    usage.prompt_tokens - cached - written, usage.completion_tokens)

    def _ollama(self, body):
        thinking, said, calls, last = "", "", [], None
        for last in self.ollama.chat(**body):
            thinking += last.message.thinking or ""
            said += last.message.content or ""
            for made in last.message.tool_calls or []:
                calls.append(call("", made.function.name, dict(made.function.arguments)))
        content = [native("ollama", {"thinking": thinking})] if thinking else []
        content += ([text(said)] if said else []) + calls
        stop = last.done_reason if last.done else "not done"
        return read(content, STOPS.get(stop, stop), 0, 0, last.prompt_eval_count, last.eval_count)


def text(words):
    return {"type": "text", "text": words}


def call(id, name, arguments):
    return {"type": "call", "id": id, "name": name, "arguments": arguments}


def native(provider, piece):
    return {"type": "native", "provider": provider, "json": piece}


def read(content, stop, cached, written, uncached, output):
    usage = {"read": cached, "written": written, "uncached": uncached, "output": output}
    return {"content": content, "stop": stop, "usage": usage}
