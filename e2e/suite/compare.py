"""When two answers are the same: equal as JSON, less what is listed here and nowhere else."""

import copy
import difflib
import json

EXCLUSIONS = {
    "result.resultType": "a stamp of 2026-07-28 on every result; 2025 has none, and the two sides may differ in era",
    "result._meta[io.modelcontextprotocol/serverInfo]": "who answers: the gateway says its own name",
    "result._meta, if nothing else is in it": "it held only the stamp above",
    "progress[].progressToken": "each connection has its own tokens",
    "the working folder's path": "each side has a copy of the fixtures, told apart by folder; shown as {dir}",
    "tool.name on /mcp/full": "it is server__tool there; everything else of the tool is compared",
}

ABSENT = "(absent)"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


def answer(raw, folder):
    """What counts in the answer to a call, as a plain value."""
    raw = copy.deepcopy(raw)
    if "result" in raw:
        result = raw["result"]
        result.pop("resultType", None)
        if isinstance(result.get("_meta"), dict):
            result["_meta"].pop(SERVER_INFO, None)
            if not result["_meta"]:
                del result["_meta"]
        kept = {"result": result}
    elif "error" in raw:
        kept = {"error": raw["error"]}
    else:
        # The SDK refused to send it.
        return {"refused": raw.get("outcome")}
    progress = raw.get("progress") or []
    for one in progress:
        one.pop("progressToken", None)
    kept["progress"] = progress
    return plain(kept, folder)


def tools(listed, folder, named=lambda name: name):
    """Tools by name, each less its name."""
    return {named(tool["name"]): plain({k: v for k, v in tool.items() if k != "name"}, folder) for tool in listed}


def plain(value, folder):
    """With the folder's path replaced, and a whole float as the integer it equals in JSON."""
    if isinstance(value, dict):
        return {plain(key, folder): plain(inner, folder) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner, folder) for inner in value]
    if isinstance(value, str):
        return value.replace(str(folder), "{dir}")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def written(value):
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)


def difference(expected, actual):
    """None if equal; otherwise both in full up to a length, as a diff. Text decides, since in Python True == 1."""
    left, right = written(expected), written(actual)
    if left == right:
        return None
    lines = difflib.unified_diff(left.splitlines(), right.splitlines(), "direct", "through the gateway", lineterm="", n=4)
    return f"{first(expected, actual)}\n" + "\n".join(line[:2000] for line in list(lines)[:120])


def first(expected, actual, path="$"):
    """Where two different values first differ, in one line."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        keys = [k for k in [*expected, *actual] if written(expected.get(k, ABSENT)) != written(actual.get(k, ABSENT))]
        return first(expected.get(keys[0], ABSENT), actual.get(keys[0], ABSENT), f"{path}.{keys[0]}")
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        place = next(n for n, pair in enumerate(zip(expected, actual)) if written(pair[0]) != written(pair[1]))
        return first(expected[place], actual[place], f"{path}[{place}]")
    if isinstance(expected, list) and isinstance(actual, list):
        return f"{path}: {len(expected)} entries directly, {len(actual)} through the gateway"
    left, right = (json.dumps(value, ensure_ascii=False)[:120] for value in (expected, actual))
    return f"{path}: {left} directly, {right} through the gateway"


def gives(case, raw):
    """Why a direct answer is not what the case is for; None if it is."""
    if case.gives.startswith("error "):
        code = raw.get("error", {}).get("code")
        return None if code == int(case.gives.split()[1]) else f"wanted a JSON-RPC {case.gives}, got {str(raw)[:300]}"
    result = raw.get("result")
    if result is None:
        return f"wanted a result, got {str(raw)[:300]}"
    if case.gives == "isError":
        return None if result.get("isError") is True else f"wanted a tool error, got {str(result)[:300]}"
    if result.get("isError"):
        return f"wanted {case.gives}, got a tool error: {str(result)[:300]}"
    if case.gives == "structured":
        return None if "structuredContent" in result else f"wanted structured content, got {str(result)[:300]}"
    kinds = {block.get("type") for block in result.get("content", [])}
    if case.gives not in kinds:
        return f"wanted {case.gives} content, got {sorted(kinds)}"
    if case.progress and len(raw["progress"]) != case.arguments["steps"]:
        return f"wanted {case.arguments['steps']} progress notifications, got {len(raw['progress'])}"
    return None


def disorder(raw):
    """Why the progress of an answer is out of order; None if it is in order."""
    values = [one["progress"] for one in raw.get("progress") or []]
    if values != sorted(set(values)):
        return f"progress does not increase: {values}"
    if not raw.get("progress_before_answer", True):
        return "progress arrived after the answer"
    return None
