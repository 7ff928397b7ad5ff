"""The SDKs' request types as validators that let nothing unknown pass.

Import this before anything of the SDKs: their types say `Iterable` where they take lists, which pydantic would check
only when somebody iterates, and then too late to choose between the members of a union. Here they say `List`.
"""

import sys
import typing

import pydantic
import typing_extensions

_iterable = typing.Iterable
typing.Iterable = typing.List
import anthropic.types.beta  # noqa: E402
import ollama  # noqa: E402
import openai.types.chat  # noqa: E402
import openai.types.responses  # noqa: E402
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming as BetaParams  # noqa: E402
from anthropic.types.message_create_params import MessageCreateParamsStreaming  # noqa: E402
from ollama._types import ChatRequest, Image, Message, Tool  # noqa: E402
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming  # noqa: E402
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming  # noqa: E402

typing.Iterable = _iterable


def _takes_more(kind):
    """Whether it is meant to have members that it does not name."""
    none = typing_extensions.NoExtraItems
    return getattr(kind, "__extra_items__", none) not in (none, None)


# A TypedDict ignores keys it does not have, unless it is told not to.
for _name, _module in list(sys.modules.items()):
    if _name.startswith(("anthropic.types", "openai.types")):
        for _type in vars(_module).values():
            if isinstance(_type, type) and typing_extensions.is_typeddict(_type):
                extra = {} if _takes_more(_type) else {"extra": "forbid"}
                _type.__pydantic_config__ = {**extra, "arbitrary_types_allowed": True}


def _adapter(kind):
    adapter = pydantic.TypeAdapter(kind)
    return lambda body: adapter.validate_python(body, strict=True)


def changes_tools(body):
    """Whether tools come or go in the middle of a conversation, which is a beta of Anthropic's."""
    return any(message.get("role") == "system" for message in body["messages"])


def _anthropic(body):
    _BETA(body) if changes_tools(body) else _PLAIN(body)


_PLAIN, _BETA = _adapter(MessageCreateParamsStreaming), _adapter(BetaParams)


def _ollama(body):
    """Models, not TypedDicts: what they do not know is dropped, so what comes out is compared with what went in.

    The types leave keywords of JSON Schema out (`default`, `additionalProperties`), which the server takes.
    """
    request = ChatRequest.model_validate(body, strict=True)
    unknown = set(body) - set(ChatRequest.model_fields)
    assert not unknown, f"unknown members {sorted(unknown)}"
    assert request.stream is True, "not streaming"
    for given in body["messages"]:
        # Its client wraps pictures before it makes a message.
        images = {"images": [Image(value=data) for data in given["images"]]} if "images" in given else {}
        kept = Message.model_validate({**given, **images}, strict=True).model_dump(exclude_unset=True)
        assert kept == given, f"a message is read as {kept}, and was {given}"
    for given in body.get("tools", []):
        kept = Tool.model_validate(given, strict=True).model_dump(exclude_unset=True)
        schemas = kept["function"].pop("parameters"), given["function"]["parameters"]
        assert kept == {**given, "function": {k: v for k, v in given["function"].items() if k != "parameters"}}
        assert within(*schemas), f"a schema is read as {schemas[0]}, and was {schemas[1]}"


def within(part, whole):
    """Whether everything in `part` is the same in `whole`."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and within(part[key], whole[key]) for key in part)
    return part == whole


VALIDATORS = {
    "anthropic": _anthropic,
    "openai-responses": _adapter(ResponseCreateParamsStreaming),
    "openai-chat": _adapter(CompletionCreateParamsStreaming),
    "ollama": _ollama,
}
