"""Drives the official Python SDK on behalf of the tests: the protocol of driver.mjs, same operations.

Runs in the environment of the SDK version under test, which has nothing else installed.
"""
import json
import sys
import threading

import anthropic

write_lock = threading.Lock()


def describe(e):
    body = getattr(e, "body", None)
    error = body.get("error") if isinstance(body, dict) else None
    return {
        "class": type(e).__name__,
        "status": getattr(e, "status_code", None),
        "type": getattr(e, "type", None) or (error or {}).get("type"),
        "message": str(e),
        "request_id": getattr(e, "request_id", None),
    }


def plain(model):
    return model.model_dump(mode="json") if hasattr(model, "model_dump") else model


def surface(client, call):
    return client.beta.messages if call.get("beta") else client.messages


def create(client, call):
    message = surface(client, call).create(**call["params"])
    return {"message": plain(message), "request_id": getattr(message, "_request_id", None),
            "is_string": isinstance(message, str)}


def stream_raw(client, call):
    events = []
    try:
        for event in client.messages.create(**call["params"], stream=True):
            events.append(plain(event))
    except Exception as e:  # noqa: BLE001 - what the SDK raises is what the test judges
        return {"events": events, "error": describe(e)}
    return {"events": events}


def stream_final(client, call):
    deltas = []
    with surface(client, call).stream(**call["params"]) as stream:
        for text in stream.text_stream:
            deltas.append(text)
        return {"message": plain(stream.get_final_message()), "deltas": deltas}


def abort(client, call):
    with client.messages.stream(**call["params"]) as stream:
        for text in stream.text_stream:
            return {"text": text}  # leaving the block closes the connection
    return {"text": ""}


def count_tokens(client, call):
    return plain(surface(client, call).count_tokens(**call["params"]))


def models_list(client, call):
    return {"models": [plain(m) for m in client.models.list(**(call.get("params") or {}))]}


def models_retrieve(client, call):
    return plain(client.models.retrieve(call["params"]))


OPS = {f.__name__: f for f in
       (create, stream_raw, stream_final, abort, count_tokens, models_list, models_retrieve)}


def handle(call):
    answer = {"id": call["id"]}
    try:
        options = {**(call.get("client") or {})}
        if "maxRetries" in options:
            options["max_retries"] = options.pop("maxRetries")
        client = anthropic.Anthropic(api_key=call["key"], base_url=call["base"], **options)
        with client:
            answer["result"] = OPS[call["op"]](client, call)
    except anthropic.AnthropicError as e:
        answer["result"] = {"error": describe(e)}
    except Exception as e:  # noqa: BLE001
        answer["result"] = {"error": describe(e)}
    with write_lock:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


for line in sys.stdin:
    threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
