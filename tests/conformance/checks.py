"""The checks of the wire contract (§10), and why some have no test yet."""

CHECKS = {
    1: "create, key as Bearer; request id", 2: "create, x-api-key and 2023-06-01",
    3: "no credentials: 401", 4: "wrong key: 401, one attempt", 5: "both credential headers: 200",
    6: "version missing or unknown: 400", 7: "temperature under 2023-06-01",
    8: "temperature under 2026-10-21, strict: 400", 9: "top_k and top_p likewise, count_tokens too",
    10: "unknown beta value: 200", 11: "beta.messages.create", 12: "unknown model: 404",
    13: "missing max_tokens: 400 naming it", 14: "21334 tokens, not streamed: refused by the client",
    15: "max_tokens above the model's maximum: 400 before SSE", 16: "max_tokens 1",
    17: "stop sequence", 18: "stop sequence split across tokens", 19: "system string = blocks",
    20: "content string = block", 21: "consecutive user messages", 22: "assistant prefill",
    23: "system role in mid-conversation", 24: "empty text block: 400",
    25: "document block in an assistant message", 26: "citations in user text", 27: "thinking adaptive: 200",
    28: "thinking enabled: 400", 29: "tool_choice any", 30: "tool_choice names a missing tool",
    31: "disable_parallel_tool_use", 32: "tool_result without tool_use", 33: "is_error tool_result",
    34: "server tool: 400", 35: "toolRunner, 2 turns", 36: "thread().send", 37: "messages.parse",
    38: "schema with $ref, anyOf, enum", 39: "schema that cannot be honoured", 40: "5 cache_control blocks",
    41: "cache counters", 42: "ttl 1h", 43: "countTokens = usage", 44: "stream helper = create",
    45: "SSE: event names, framing", 46: "SSE: order and indexes", 47: "streamed tool call",
    48: "streamed thinking", 49: "streamed UTF-8", 50: "pings in a silent stream",
    51: "abort, HTTP/1.1", 52: "abort, HTTP/2: RST_STREAM 0", 53: "abort before headers",
    54: "failure mid-stream", 55: "drain and kill during a stream", 56: "queue full: 529, retried",
    57: "quota: 429", 58: "rate-limit headers", 59: "529 with maxRetries 0", 60: "33 MB body: 413",
    61: "malformed JSON", 62: "unknown field: 400 naming it", 63: "404 and 405 with JSON",
    64: "models.list pagination", 65: "model id with a slash", 66: "lifecycle filter", 67: "batches",
    68: "results before the end", 69: "batch cancel and delete", 70: "duplicate custom_id",
    71: "credentials provider", 72: "revocation, 5 parallel", 73: "apiKey function",
    74: "retry-after-ms on 401", 75: "ALPN: Node 20 http/1.1, Node 26 h2", 76: "100 streams on one connection",
    77: "PING while streaming", 78: "gzip JSON, never SSE", 79: "AI SDK", 80: "content types",
    81: "accept-and-ignore fields", 82: "coding-agent-shaped request", 83: "two identical requests",
    84: "50 parallel calls, HTTP/1.1",
}

_TOOLS = "tools come with the tools and structured-output issue"
_BATCH = "batches come with the batch issue"
EXEMPT = {
    **dict.fromkeys((29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 47, 48), _TOOLS),
    **dict.fromkeys((67, 68, 69, 70), _BATCH),
}
