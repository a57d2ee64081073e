"""Credentials, versions and fields: what is accepted, what is refused and how it says so."""
import pytest

from lib import wire
from lib.server import KEY, MODEL, NULL, null_params, user
from lib.wire import headers_for, post, request

HELLO = {"model": NULL, "max_tokens": 4, "messages": user("Say hello.")}
BOTH = pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])


def refused(answer, *words, status=400, type="invalid_request_error"):
    body = answer.json()
    assert (answer.status, body["type"], body["error"]["type"]) == (status, "error", type), body
    assert body["request_id"] == answer.headers["request-id"] and body["request_id"].startswith("req_")
    for word in words:
        assert word in body["error"]["message"], body
    return body


@pytest.mark.check(3)
def test_no_credentials(server):
    answer = post(server, HELLO, headers=headers_for(key=None))
    refused(answer, status=401, type="authentication_error")


@pytest.mark.check(3)
@pytest.mark.parametrize("target", ["/v1/models", "/v1/models/x", "/v1/messages/count_tokens"])
def test_no_credentials_elsewhere(server, target):
    method = "POST" if target.endswith("count_tokens") else "GET"
    answer = request(server, method, target, {} if method == "POST" else None, headers_for(key=None))
    refused(answer, status=401, type="authentication_error")


@pytest.mark.check(5)
def test_both_credentials(server):
    assert post(server, HELLO, headers=headers_for(authorization=f"Bearer {KEY}")).status == 200
    assert post(server, HELLO, headers=headers_for(key=None, authorization=f"Bearer {KEY}")).status == 200


@pytest.mark.check(6)
def test_versions(server):
    refused(post(server, HELLO, headers=headers_for(version=None)), "anthropic-version", "2026-10-21")
    refused(post(server, HELLO, headers=headers_for(version="2019-01-01")), "2023-06-01")


@BOTH
@pytest.mark.check(7)
def test_sampling_parameters_accepted(server, version):
    body = {**HELLO, "temperature": 0.2, "top_p": 0.9, "top_k": 5}
    assert post(server, body, headers=headers_for(version=version)).status == 200


@pytest.mark.check(7)
def test_temperature_old_sdk(server, fleet):
    result = fleet.get("ts-0.137@node20").call(server, "create", params={**HELLO, "temperature": 0.2})
    assert result["message"]["type"] == "message"


@pytest.mark.check(8)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-1.10@node26"])
def test_temperature_strict(strict, fleet, name):
    error = fleet.get(name).call(strict, "create", params={**HELLO, "temperature": 1})["error"]
    assert error["class"] == "BadRequestError" and "temperature" in error["message"]


@pytest.mark.check(9)
@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p"])
def test_sampling_strict(strict, field):
    new, old = headers_for(version="2026-10-21"), headers_for(version="2023-06-01")
    body = {**HELLO, field: 1}
    refused(post(strict, body, headers=new), field)
    assert post(strict, body, headers=old).status == 200
    refused(post(strict, {"model": NULL, "messages": HELLO["messages"], field: 1},
                 "/v1/messages/count_tokens", headers=new), field)


@pytest.mark.check(10)
@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-0.137@node20"])
def test_unknown_beta(server, fleet, name):
    options = {"headers": {"anthropic-beta": "totally-unknown-2099-01-01"}}
    result = fleet.get(name).call(server, "create", params=HELLO, options=options)
    assert result["message"]["type"] == "message"
    assert result["attempts"][0]["headers"]["anthropic-beta"] == "totally-unknown-2099-01-01"


@pytest.mark.check(13)
def test_missing_max_tokens(server, fleet):
    params = {"model": NULL, "messages": user("x")}
    error = fleet.get("ts-1.14@node20").call(server, "create", params=params,
                                             options={"timeout": 60000})["error"]
    assert error["status"] == 400 and "max_tokens" in error["message"]


@BOTH
@pytest.mark.check(13)
@pytest.mark.parametrize("field", ["model", "messages", "max_tokens"])
def test_missing_fields(server, version, field):
    body = {k: v for k, v in HELLO.items() if k != field}
    refused(post(server, body, headers=headers_for(version=version)), field)


@pytest.mark.check(13)
@pytest.mark.parametrize("change,path", [
    ({"messages": "hello"}, "messages"), ({"messages": []}, "messages"), ({"max_tokens": "8"}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": 1.5}, "max_tokens"), ({"stream": "yes"}, "stream"),
    ({"messages": [{"role": "user"}]}, "messages.0.content"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}, "messages.0.content.0.text"),
    ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages.0.content.0"),
    ({"stop_sequences": "x"}, "stop_sequences"), ({"stop_sequences": [3]}, "stop_sequences.0"),
    ({"system": 5}, "system"), ({"metadata": []}, "metadata"), ({"temperature": "hot"}, "temperature"),
    ({"service_tier": "gold"}, "service_tier"),
])
def test_wrong_types_by_path(server, change, path):
    refused(post(server, {**HELLO, **change}), path)


@pytest.mark.check(14)
def test_refused_by_the_client(server, fleet):
    result = fleet.get("ts-1.14@node20").call(server, "create", params={**HELLO, "max_tokens": 21334})
    assert "error" in result and result["error"].get("status") is None and result["attempts"] == []


@pytest.mark.check(15)
def test_above_the_models_maximum(server, fleet):
    params = {**HELLO, "model": "null-capped", "max_tokens": 101}
    result = fleet.get("ts-1.14@node20").call(server, "stream_raw", params=params)
    assert result["events"] == [] and result["error"]["class"] == "BadRequestError"
    assert "max_tokens" in result["error"]["message"] and "100" in result["error"]["message"]
    status, headers, _ = wire.stream(server, params)
    assert status == 400 and headers["content-type"].startswith("application/json")


@pytest.mark.check(15)
def test_agents_ask_for_more_than_fits(real):
    """Agents send max_tokens 32000 to any model: without a configured maximum it runs."""
    answer = post(real, {"model": MODEL, "max_tokens": 32000, "messages": user("Say ok."),
                         "stop_sequences": [".", "o", "e"]})
    assert answer.status == 200, answer.body


@BOTH
@pytest.mark.check(24)
def test_empty_text_block(server, version):
    body = {**HELLO, "messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}
    refused(post(server, body, headers=headers_for(version=version)), "messages.0.content.0")


DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Facts."}}
CITATION = {"type": "char_location", "cited_text": "x", "document_index": 0, "document_title": None,
            "start_char_index": 0, "end_char_index": 1}


@pytest.mark.check(25)
def test_document_in_assistant_message(server, fleet):
    body = {**HELLO, "messages": [*user("q"), {"role": "assistant", "content": [DOCUMENT]}, *user("r")]}
    new = fleet.get("ts-1.14@node20").call(server, "create", params=body)["error"]
    assert new["class"] == "BadRequestError" and "messages.1.content.0" in new["message"]
    old = fleet.get("ts-0.137@node20").call(server, "create", params=body)
    assert "message" in old or "assistant" not in old["error"]["message"], old.get("error")


@pytest.mark.check(26)
def test_citations_in_user_text(server, fleet):
    text = {"type": "text", "text": "x", "citations": [CITATION]}
    body = {**HELLO, "messages": [{"role": "user", "content": [text]}]}
    error = fleet.get("ts-1.14@node20").call(server, "create", params=body)["error"]
    assert error["class"] == "BadRequestError" and "citations" in error["message"]
    assert "message" in fleet.get("ts-0.137@node20").call(server, "create", params=body)


@BOTH
@pytest.mark.check(27)
@pytest.mark.parametrize("thinking", [{"type": "adaptive", "display": "omitted"}, {"type": "disabled"},
                                      {"type": "adaptive"}])
def test_thinking_no_op(server, version, thinking):
    assert post(server, {**HELLO, "thinking": thinking}, headers=headers_for(version=version)).status == 200


@BOTH
@pytest.mark.check(28)
def test_thinking_enabled(server, version):
    for budget in (512, 2048):
        body = {**HELLO, "max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": budget}}
        refused(post(server, body, headers=headers_for(version=version)), "thinking")


@pytest.mark.check(61)
@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"null", b'{"model":"x",}', b"\xff\xfe", b'{"a":"\xff"}',
                                  b'{"model":"' + b"[" * 100000, b"[" * 100000])
def test_malformed_json(server, body):
    refused(post(server, body))


@BOTH
@pytest.mark.check(62)
def test_unknown_field(server, version):
    refused(post(server, {**HELLO, "colour": 1}, headers=headers_for(version=version)), "colour")
    refused(post(server, {**HELLO, "messages": [{"role": "user", "content": "x", "mood": 1}]},
                 headers=headers_for(version=version)), "messages.0.mood")


@pytest.mark.check(62)
@pytest.mark.parametrize("field,value", [("tools", [{"name": "f", "input_schema": {"type": "object"}}]),
                                         ("tool_choice", {"type": "any"})])
def test_not_supported_yet(server, field, value):
    refused(post(server, {**HELLO, field: value}), field)


@pytest.mark.check(63)
def test_paths_and_methods(server):
    for method, target in (("GET", "/v1/nothing"), ("GET", "/nothing"), ("GET", "/v1/files"), ("POST", "/v1/complete")):
        refused(request(server, method, target, {} if method == "POST" else None), status=404,
                type="not_found_error")
    for method, target in (("GET", "/v1/messages"), ("DELETE", "/v1/messages"), ("POST", "/v1/models"),
                           ("PUT", "/v1/messages/count_tokens")):
        answer = request(server, method, target, {} if method in ("POST", "PUT") else None)
        refused(answer, status=405)
        assert answer.headers["allow"]
    refused(request(server, "POST", "/v1/v1/messages", HELLO), "/v1", status=404, type="not_found_error")


@pytest.mark.check(63)
def test_metrics_are_not_here(server):
    assert request(server, "GET", "/metrics").status == 404


@pytest.mark.check(66)
def test_lifecycle_filter(server, fleet):
    sdk = fleet.get("ts-1.14@node20")
    active = sdk.call(server, "models_list", params={"lifecycle": ["active"]})
    assert "lifecycle%5B%5D=active" in active["attempts"][0]["url"]
    assert NULL in [m["id"] for m in active["models"]]
    assert sdk.call(server, "models_list", params={"lifecycle": ["retired"]})["models"] == []


@BOTH
@pytest.mark.check(81)
def test_accept_and_ignore(server, version):
    body = {**HELLO, "metadata": {"user_id": "u-1"}, "service_tier": "auto", "inference_geo": None,
            "container": None, "context_management": None, "speed": "standard", "mcp_servers": [],
            "diagnostics": None, "thread": None, "fallbacks": None, "cache_control": None}
    answer = post(server, body, headers=headers_for(version=version))
    assert answer.status == 200, answer.body
    assert answer.json()["usage"]["service_tier"] == "standard"


@pytest.mark.check(82)
def test_coding_agent_shape(server):
    cached = {"cache_control": {"type": "ephemeral"}}
    body = {
        "model": NULL, "max_tokens": 32000, "stream": True,
        "system": [{"type": "text", "text": "You are a coding agent.", **cached}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "List files.", **cached}]},
                     {"role": "system", "content": [{"type": "text", "text": "Today is Sunday.", **cached}]}],
        "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "user_1_account__session_2"},
    }
    headers = headers_for(anthropic_beta="claude-code-20250219,context-management-2025-06-27")
    with wire.Http1(server) as connection:
        import json
        connection.send_request("POST", "/v1/messages?beta=true", headers, json.dumps(body).encode())
        status, fields = connection.read_head()
        pieces = b"".join(connection.chunks(fields))
    assert status == 200, pieces
    assert b"event: message_stop" in pieces


@pytest.mark.check(83)
def test_identical_requests(server):
    import concurrent.futures
    params = null_params("tokens=5 delay_ms=100")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: post(server, params), range(2)))
    assert [a.status for a in answers] == [200, 200]
    assert answers[0].json()["id"] != answers[1].json()["id"]
    assert answers[0].headers["request-id"] != answers[1].headers["request-id"]
