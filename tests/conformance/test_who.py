"""Who may ask from where, and under which names: hosts, origins, credentials, narrowed tokens, model names."""
import json
import signal
import time

import pytest

from lib import server as servers
from lib import wire
from lib.keys import as_key, new_key
from lib.server import NULL, null_model, null_params, user
from lib.wire import headers_for, post, request

SMALL = {"model": NULL, "max_tokens": 4, "messages": user("hello there")}
COUNT = {"model": NULL, "messages": user("hello there")}
CHANGES = [("POST", "/v1/messages", SMALL), ("POST", "/v1/messages/count_tokens", COUNT),
           ("POST", "/v1/cache/warmup", {"model": NULL, "system": "s"}), ("POST", "/v1/auth/token", {}),
           ("POST", "/v1/config/reload", {}), ("DELETE", "/v1/cache", None), ("DELETE", "/v1/cache/0-7", None)]
READS = [("GET", "/v1/models", None), ("GET", f"/v1/models/{NULL}", None), ("GET", "/v1/cache", None),
         ("GET", "/v1/topology", None)]


@pytest.fixture(scope="module")
def open_server():
    """Without keys: everybody who reaches it is let in."""
    with servers.Server([null_model()], {"server.names": ["llm.home.arpa"]}, keys=()) as running:
        yield running


@pytest.fixture(scope="module")
def own():
    running = servers.Server([null_model(aliases=["claude-*"]), null_model("other", default=True)],
                             {"topology.region": "here", "topology.regions": ["eu=https://eu.example.com"],
                              "api.unknown_model": "default"}, keys=(), start=False)
    running.admin = running.create_key("team-a", "--admin")
    running.plain = running.create_key("team-a")
    running.start()
    with running:
        yield running


def asked(server, method, target, body, h2=False, **headers):
    fields = {**headers_for(key=None), **headers}
    if not h2:
        return request(server, method, target, body, headers=fields)
    with wire.Http2(server) as connection:
        stream_id = connection.send_head(method, target, fields, end=body is None)
        if body is not None:
            connection.h2.send_data(stream_id, json.dumps(body).encode(), end_stream=True)
        connection.flush()
        return connection.finish(stream_id)


# --- hosts and origins ---------------------------------------------------------------------------
@pytest.mark.parametrize("method, target, body", CHANGES + READS)
def test_without_keys_only_names_of_this_machine_are_answered(open_server, method, target, body):
    for h2 in (False, True):
        for host in ("evil.example:8080", "localhost.evil.example", "0.0.0.0:8080"):
            refused = asked(open_server, method, target, body, h2, host=host)
            assert refused.status == 421 and "server.names" in refused.error["message"], refused.body
        for host in ("localhost:1", "127.0.0.1", "[::1]:8080", "LLM.home.arpa"):
            assert asked(open_server, method, target, body, h2, host=host).status not in (403, 421), host


def test_rebound_pages_read_nothing(open_server):
    """What is answered to any name tells nothing."""
    for target in ("/readyz", "/healthz", "/health", "/", "/v1", "/api/hello"):
        body = asked(open_server, "GET", target, None, host="evil.example").json()
        assert list(body) == ["status"], target
    assert "models" in asked(open_server, "GET", "/readyz", None).json()


@pytest.mark.parametrize("method, target, body", CHANGES)
@pytest.mark.parametrize("keys", [False, True])
def test_a_foreign_origin_changes_nothing(open_server, own, method, target, body, keys):
    server, key = (own, {"x-api-key": own.admin["secret"]}) if keys else (open_server, {})
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
            refused = asked(server, method, target, body, origin=origin, **key, **{"content-type": kind})
            assert refused.status == 403 and "api.cors_origins" in refused.error["message"], refused.body
            assert "access-control-allow-origin" not in refused.headers
    for origin in ("http://localhost:5173", "http://127.0.0.1:3000", "http://[::1]:80"):
        good = asked(server, method, target, body, origin=origin, **key)
        assert good.status not in (403, 421) and good.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize("name", ["ts-1.14@node20", "ts-0.137@node26"])
def test_a_browser_app_of_this_machine(open_server, fleet, name):
    client = {"dangerouslyAllowBrowser": True, "defaultHeaders": {"origin": "http://localhost:5173"}}
    result = fleet.get(name).call(open_server, "create", key="any", params=SMALL, client=client)
    assert result["message"]["type"] == "message"
    assert result["attempts"][0]["response_headers"]["access-control-allow-origin"] == "http://localhost:5173"
    client["defaultHeaders"]["origin"] = "http://evil.example"
    result = fleet.get(name).call(open_server, "create", key="any", params=SMALL, client=client)
    assert result["error"]["status"] == 403 and len(result["attempts"]) == 1


def test_server_names_and_readyz_details_are_settings():
    with servers.Server([null_model()], {"server.readyz_details": False}, keys=(), tls=False) as server:
        assert request(server, "GET", "/readyz").json() == {"status": "ready"}
        assert asked(server, *CHANGES[0], host="a.example").status == 421
        text = server.config_path.read_text().replace("[server]\n", '[server]\nnames = ["A.example"]\n')
        server.config_path.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert asked(server, *CHANGES[0], host="a.example").status == 200


# --- credentials and tokens ----------------------------------------------------------------------
def token_of(server, key, wish=None):
    answer = request(server, "POST", "/v1/auth/token", wish, headers={"x-api-key": key["secret"]})
    assert answer.status == 200, answer.body
    return answer.json()["access_token"]


def test_the_valid_one_of_two_credentials_counts(own):
    token = token_of(own, own.plain)
    for key, bearer in (("sk-ant-another-services", own.plain["secret"]), (own.plain["secret"], "another"),
                        ("sk-ant-another-services", token), (token, "another")):
        answer = post(own, SMALL, headers={**headers_for(key=key), "authorization": f"Bearer {bearer}"})
        assert answer.status == 200, answer.body
    refused = post(own, SMALL, headers={**headers_for(key="another"), "authorization": "Bearer one"})
    assert refused.status == 401


def test_tokens_are_narrowed_on_every_route(own):
    there = token_of(own, own.admin, {"region_hint": "eu"})
    for method, target, body in CHANGES + READS:
        if target == "/v1/auth/token":
            continue  # not for tokens at all: 403
        answer = request(own, method, target, body, headers=headers_for(key=there))
        assert answer.status == 421 and answer.headers["location"] == "https://eu.example.com" + target, target
    other = headers_for(key=token_of(own, own.admin, {"model_scope": ["other"]}))
    assert request(own, "GET", f"/v1/models/{NULL}", headers=other).status == 404
    assert [m["id"] for m in request(own, "GET", "/v1/models", headers=other).json()["data"]] == ["other"]
    for method, target in (("GET", "/v1/topology"), ("POST", "/v1/config/reload")):
        refused = request(own, method, target, headers=other)
        assert refused.status == 403 and "the key itself" in refused.error["message"]


# --- quotas --------------------------------------------------------------------------------------
def test_counting_and_looking_up_have_limits_of_their_own(own):
    key = new_key(own, "team-n", "--rpm", 5)
    ways = {"counts": lambda: post(own, COUNT, "/v1/messages/count_tokens", headers=as_key(key)),
            "looks": lambda: request(own, "GET", "/v1/cache", headers=as_key(key)),
            "asks": lambda: post(own, SMALL, headers=as_key(key))}
    for name, ask in ways.items():
        answers = [ask() for _ in range(8)]
        assert [a.status for a in answers[:4]] == [200] * 4 and answers[-1].status == 429, name
        assert answers[0].headers["anthropic-ratelimit-requests-limit"] == "5"
        assert int(answers[-1].headers["retry-after"]) >= 1
    assert request(own, "DELETE", "/v1/cache", headers=as_key(key)).status == 429


def test_bad_bodies_are_not_charged(own):
    key = new_key(own, "team-n", "--rpm", 5)
    for body in (b"{", {**SMALL, "max_tokens": -1}, {**SMALL, "messages": []}, {**SMALL, "nonsense": 1}):
        for _ in range(4):
            refused = post(own, body, headers=as_key(key))
            assert refused.status == 400 and refused.headers["anthropic-ratelimit-requests-remaining"] == "5"
    assert post(own, SMALL, headers=as_key(key)).headers["anthropic-ratelimit-requests-remaining"] == "4"


def test_a_small_output_quota_is_used_up(own):
    key = new_key(own, "team-n", "--output-tpm", 200)
    body = {**null_params("tokens=5"), "max_tokens": 4096}
    answers = [post(own, body, headers=as_key(key)) for _ in range(20)]
    assert [a.status for a in answers] == [200] * 20, answers[-1].body
    assert int(answers[-1].headers["anthropic-ratelimit-output-tokens-remaining"]) >= 100


# --- names of models -----------------------------------------------------------------------------
@pytest.mark.parametrize("name, model", [(NULL, NULL), (NULL.upper(), NULL), ("claude-sonnet-4-5", NULL),
                                         ("Claude-x", NULL), ("gpt-4o", "other"), ("OTHER", "other")])
def test_any_name_works_everywhere(own, name, model):
    """The answer names the model that it is of, as the public API does for its aliases."""
    headers = as_key(own.plain, x_anthropic_early_hint=f"model={name}")
    for sent in (headers, as_key(own.plain)):
        answer = post(own, {**SMALL, "model": name}, headers=sent)
        assert answer.status == 200 and answer.json()["model"] == model
        assert post(own, {**COUNT, "model": name}, "/v1/messages/count_tokens", headers=sent).status == 200
    assert request(own, "GET", f"/v1/models/{name}", headers=headers).json()["id"] == model
    token = headers_for(key=token_of(own, own.plain, {"model_scope": [name]}))
    assert post(own, {**SMALL, "model": name}, headers=token).status == 200
    assert [m["id"] for m in request(own, "GET", "/v1/models", headers=token).json()["data"]] == [model]


@pytest.mark.parametrize("name", ["ts-1.14@node20", "python-2"])
def test_sdks_with_names_of_the_public_api(own, fleet, name):
    sdk = fleet.get(name)
    for asked_for, model in (("claude-opus-4-1", NULL), ("something-else", "other")):
        result = sdk.call(own, "create", key=own.plain["secret"], params={**SMALL, "model": asked_for})
        assert result["message"]["model"] == model


def test_unknown_names_are_refused_unless_set():
    with servers.Server([null_model(), null_model("other")], keys=(), tls=False) as server:
        assert post(server, {**SMALL, "model": "gpt-4o"}).status == 404
        text = server.config_path.read_text()
        server.config_path.write_text(text + '[api]\nunknown_model = "default"\n')
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert post(server, {**SMALL, "model": "gpt-4o"}).json()["model"] == NULL  # the first
        assert post(server, {**SMALL, "model": "Other"}).json()["model"] == "other"
