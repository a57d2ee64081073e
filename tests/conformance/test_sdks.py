"""What every official client does first: each check for each SDK version on each runtime."""
import pytest

from lib.clients import ALL_SDKS
from lib.server import MODEL, NULL, null_params, user

every_sdk = pytest.mark.parametrize("name", ALL_SDKS)
HELLO = {"model": NULL, "max_tokens": 8, "messages": user("Say hello.")}


@pytest.fixture
def sdk(fleet, name):
    return fleet.get(name)


@every_sdk
@pytest.mark.check(1)
@pytest.mark.check(2)
def test_create(server, sdk):
    result = sdk.call(server, "create", params=HELLO)
    message = result["message"]
    assert message["type"] == "message" and message["role"] == "assistant"
    assert message["id"].startswith("msg_") and message["model"] == NULL
    assert message["content"][0]["type"] == "text" and message["content"][0]["text"]
    assert not message["content"][0].get("citations")
    assert message["usage"]["output_tokens"] == 8 and message["usage"]["input_tokens"] > 0
    assert result["request_id"].startswith("req_")
    for attempt in result.get("attempts", []):
        sent = attempt["headers"]
        assert attempt["response_headers"]["request-id"] == result["request_id"]
        assert sent["anthropic-version"] == sdk.version
        assert ("x-api-key" in sent) == (sdk.version == "2023-06-01")


@every_sdk
@pytest.mark.check(62)
def test_hints_that_mean_nothing_here(server, sdk):
    block = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "scope": "global"}}
    params = {**HELLO, "system": [block], "output_config": {"task_budget": {"type": "tokens", "total": 9}},
              "thinking": {"type": "adaptive", "display": "updates"}, "stop_sequences": ["\n"]}
    assert sdk.call(server, "create", params=params)["message"]["type"] == "message"


@every_sdk
@pytest.mark.check(80)
def test_content_types(server, sdk):
    assert not sdk.call(server, "create", params=HELLO)["is_string"]
    result = sdk.call(server, "stream_raw", params=HELLO)
    assert "error" not in result and result["events"]


@every_sdk
@pytest.mark.check(44)
def test_stream_helper_equals_create(server, sdk):
    params = null_params("tokens=20 delay_ms=1")
    streamed = sdk.call(server, "stream_final", params=params)
    whole = sdk.call(server, "create", params=params)["message"]
    message = streamed["message"]
    assert "".join(streamed["deltas"]) == whole["content"][0]["text"]
    assert len(streamed["deltas"]) > 1
    for field in ("content", "stop_reason", "usage"):
        assert message[field] == whole[field] or field == "content"
    assert message["content"][0]["text"] == whole["content"][0]["text"]


@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-0.137@node26"])
@pytest.mark.check(44)
def test_stream_helper_equals_create_real_model(real, sdk):
    params = {"model": MODEL, "max_tokens": 24, "temperature": 0, "messages": user("Name three colours.")}
    streamed = sdk.call(real, "stream_final", params=params)["message"]
    whole = sdk.call(real, "create", params=params)["message"]
    assert streamed["content"][0]["text"] == whole["content"][0]["text"]
    assert streamed["stop_reason"] == whole["stop_reason"]
    assert streamed["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@every_sdk
@pytest.mark.check(43)
def test_count_tokens_equals_usage(server, sdk):
    prompt = {"system": "Be brief.", "messages": user("How many words are in this sentence?")}
    counted = sdk.call(server, "count_tokens", params={"model": NULL, **prompt})["input_tokens"]
    usage = sdk.call(server, "create", params={"model": NULL, "max_tokens": 4, **prompt})["message"]["usage"]
    cached = (usage.get("cache_creation_input_tokens") or 0) + (usage.get("cache_read_input_tokens") or 0)
    assert counted == usage["input_tokens"] + cached > 0


@every_sdk
@pytest.mark.check(12)
def test_unknown_model(server, sdk):
    error = sdk.call(server, "create", params={**HELLO, "model": "no-such-model"})["error"]
    assert (error["class"], error["status"], error["type"]) == ("NotFoundError", 404, "not_found_error")
    assert error["request_id"].startswith("req_") and "no-such-model" in error["message"]


@every_sdk
@pytest.mark.check(4)
def test_wrong_key(server, sdk):
    result = sdk.call(server, "create", params=HELLO, key="not-a-key")
    assert result["error"]["class"] == "AuthenticationError" and result["error"]["status"] == 401
    assert len(result.get("attempts", [1])) == 1


@every_sdk
@pytest.mark.check(11)
def test_beta_create(server, sdk):
    result = sdk.call(server, "create", params=HELLO, beta=True)
    assert result["message"]["type"] == "message"
    if sdk.version == "2023-06-01" and "attempts" in result:
        assert result["attempts"][0]["url"].endswith("?beta=true")
    assert sdk.call(server, "count_tokens", params={"model": NULL, "messages": user("x")}, beta=True)[
        "input_tokens"] > 0


@every_sdk
@pytest.mark.check(64)
def test_models_list(server, sdk):
    everything = sdk.call(server, "models_list", params={"limit": 1000})["models"]
    one_by_one = sdk.call(server, "models_list", params={"limit": 1})
    ids = [m["id"] for m in one_by_one["models"]]
    assert ids == [m["id"] for m in everything] and len(set(ids)) == len(ids) >= 4
    attempts = one_by_one.get("attempts", [])
    assert not attempts or (len(attempts) >= len(ids) and "after_id=" in attempts[1]["url"])
    for model in everything:
        assert model["type"] == "model" and model["display_name"] and model["created_at"]


@every_sdk
@pytest.mark.check(65)
def test_model_with_slash(server, sdk):
    assert sdk.call(server, "models_retrieve", params="org/name with space")["id"] == "org/name with space"
    assert sdk.call(server, "models_retrieve", params="org/nothing")["error"]["class"] == "NotFoundError"


@every_sdk
@pytest.mark.check(54)
def test_failure_mid_stream(server, sdk):
    result = sdk.call(server, "stream_raw", params=null_params("tokens=50 fail=internal fail_after=5"))
    assert result["events"][0]["type"] == "message_start"
    assert any(e["type"] == "content_block_delta" for e in result["events"])
    assert result["error"]["type"] == "api_error", result["error"]
    assert not any(e["type"] == "message_stop" for e in result["events"])
    helper = sdk.call(server, "stream_final", params=null_params("tokens=50 fail=internal fail_after=5"))
    assert helper["error"]["type"] == "api_error", helper["error"]


def test_openai_models_list(server, fleet):
    """`openai` reads the same route; its base URL ends in /v1."""
    openai = fleet.get("openai@node20")
    listed = openai.call(server, "models_list", client={"baseURL": f"{server.base}/v1"})["models"]
    assert NULL in [m["id"] for m in listed]
    assert all(m["object"] == "model" and isinstance(m["created"], int) for m in listed)
    one = openai.call(server, "models_retrieve", params="org/name with space",
                      client={"baseURL": f"{server.base}/v1"})
    assert one["id"] == "org/name with space"


@pytest.mark.parametrize("runtime", ["node20", "node26"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.check(79)
def test_ai_sdk_text(server, fleet, runtime, streamed):
    result = fleet.get(f"ai@{runtime}").call(server, "ai", model=NULL, prompt="null: tokens=6", max_tokens=32,
                                             stream=streamed)
    assert "error" not in result, result
    assert result["text"] and result["finishReason"] == "stop" and result["usage"]["outputTokens"] == 6
