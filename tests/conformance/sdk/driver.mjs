// Drives the official JavaScript clients on behalf of the Python tests: JSON lines in, JSON lines out.
//
//   node driver.mjs FOLDER     FOLDER/node_modules has the packages of package.json
//
// A call is {id, op, sdk, base, key, params, options, …}; its answer {id, result} or {id, crash}. Calls
// run concurrently. What an SDK throws is a result, {error: {class, status, type, …}}: the tests judge.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import diagnostics from 'node:diagnostics_channel';
import path from 'node:path';

const require = createRequire(path.join(path.resolve(process.argv[2]), 'package.json'));

const connections = []; // ALPN of each connection this process opened, "" for plain text
diagnostics.channel('undici:client:connected').subscribe(({ socket, connectParams }) => {
  connections.push({ alpn: socket.alpnProtocol || '', host: connectParams.host });
});

function describe(e) {
  return {
    class: e?.constructor?.name, name: e?.name, status: e?.status, type: e?.type ?? e?.error?.error?.type,
    message: String(e?.message), request_id: e?.requestID ?? e?.request_id, cause: e?.cause && String(e.cause),
  };
}

// A client whose attempts are recorded: what went over the wire, retries included.
function make_client(call, attempts) {
  const recording = async (url, init) => {
    const sent = {
      url: String(url), method: init?.method,
      headers: Object.fromEntries(new Headers(init?.headers).entries()),
    };
    attempts.push(sent);
    const response = await fetch(url, init);
    sent.status = response.status;
    sent.response_headers = Object.fromEntries(response.headers.entries());
    return response;
  };
  const shared = { apiKey: call.key, baseURL: call.base, fetch: recording, ...call.client };
  if (call.sdk === 'openai') return new (require('openai').OpenAI)(shared);
  return new (require(call.sdk).Anthropic)(shared);
}

const surface = (client, call) => (call.beta ? client.beta.messages : client.messages);

const ops = {
  async create(call, client) {
    const message = await surface(client, call).create(call.params, call.options);
    return { message, request_id: message?._request_id, is_string: typeof message === 'string' };
  },
  async stream_raw(call, client) {
    const events = [];
    try {
      const stream = await client.messages.create({ ...call.params, stream: true }, call.options);
      for await (const event of stream) events.push(event);
    } catch (e) {
      return { events, error: describe(e) };
    }
    return { events };
  },
  async stream_final(call, client) {
    const deltas = [];
    const stream = surface(client, call).stream(call.params, call.options);
    stream.on('text', (text) => deltas.push(text));
    try {
      return { message: await stream.finalMessage(), deltas };
    } catch (e) {
      return { deltas, error: describe(e) };
    }
  },
  // Aborts after the first text; `beside` is a second stream of the same client that must not notice.
  async abort(call, client) {
    const beside = call.beside && ops.stream_final({ ...call, params: call.beside }, client);
    const stream = client.messages.stream(call.params, call.options);
    const outcome = { text: '' };
    await new Promise((resolve) => {
      stream.on('text', (text) => {
        outcome.text += text;
        stream.abort();
      });
      stream.on('abort', resolve);
      stream.on('error', (e) => { outcome.error = describe(e); resolve(); });
      stream.on('end', resolve);
    });
    if (beside) outcome.beside = await beside;
    return outcome;
  },
  async abort_before_headers(call, client) {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), call.after_ms);
    await client.messages.create(call.params, { ...call.options, signal: controller.signal });
    return {};
  },
  async parallel(call, client) {
    const before = connections.length;
    const results = await Promise.all(Array.from({ length: call.n }, () =>
      client.messages.create(call.params, call.options).catch((e) => ({ error: describe(e) }))));
    return { results, opened: connections.length - before };
  },
  async count_tokens(call, client) {
    return surface(client, call).countTokens(call.params, call.options);
  },
  async models_list(call, client) {
    const models = [];
    for await (const model of client.models.list(call.params)) models.push(model);
    return { models };
  },
  async models_retrieve(call, client) {
    return client.models.retrieve(call.params);
  },
  // A credentials provider over POST /v1/auth/token: `calls` in a row, then (after wait_ms) `parallel` at once.
  async credentials(call, _, attempts) {
    let fetches = 0;
    const credentials = async () => {
      fetches += 1;
      const r = await fetch(`${call.base}/v1/auth/token`, { method: 'POST', headers: { 'x-api-key': call.key } });
      if (!r.ok) throw new Error(`token: ${r.status}`);
      const t = await r.json();
      return { token: t.access_token, expiresAt: Math.floor(Date.now() / 1000) + t.expires_in };
    };
    const client = make_client({ ...call, client: { ...call.client, apiKey: undefined, credentials } }, attempts);
    const results = [];
    for (let i = 0; i < call.calls; i += 1) results.push({ message: await client.messages.create(call.params) });
    if (!call.parallel) return { results, fetches };
    // Connections first, so that what comes at once below arrives at once.
    await Promise.all(Array.from({ length: call.parallel }, () => client.messages.create(call.params)));
    await new Promise((resolve) => { setTimeout(resolve, call.wait_ms); });
    const began = Date.now();
    const parallel = await Promise.all(Array.from({ length: call.parallel }, () =>
      client.messages.create(call.params).then((message) => ({ message })).catch((e) => ({ error: describe(e) }))));
    return { results, parallel, fetches, retry_ms: Date.now() - began };
  },
  async key_function(call, _, attempts) {
    let asked = 0;
    const apiKey = async () => { asked += 1; return call.key; };
    const client = make_client({ ...call, client: { ...call.client, apiKey } }, attempts);
    try {
      return { message: await client.messages.create(call.params), asked };
    } catch (e) {
      return { error: describe(e), asked };
    }
  },
  // The Vercel AI SDK has a client of its own; its base URL ends in /v1.
  async ai(call) {
    const ai = require('ai');
    const model = require('@ai-sdk/anthropic').createAnthropic({ apiKey: call.key, baseURL: `${call.base}/v1` })(call.model);
    const input = { model, prompt: call.prompt, maxOutputTokens: call.max_tokens, maxRetries: 0 };
    if (!call.stream) {
      const { text, finishReason, usage } = await ai.generateText(input);
      return { text, finishReason, usage };
    }
    let failure;
    const stream = ai.streamText({ ...input, onError: ({ error }) => { failure = describe(error); } });
    let text = '';
    for await (const part of stream.textStream) text += part;
    if (failure) return { text, error: failure };
    return { text, finishReason: await stream.finishReason, usage: await stream.usage };
  },
  async connections() {
    return connections;
  },
};

async function handle(line) {
  const call = JSON.parse(line);
  const attempts = [];
  let answer;
  try {
    const plain = call.op === 'ai' || call.op === 'connections';
    const result = await ops[call.op](call, plain ? undefined : make_client(call, attempts), attempts)
      .catch((e) => ({ error: describe(e) }));
    answer = { id: call.id, result: Array.isArray(result) ? result : { ...result, attempts } };
  } catch (e) {
    answer = { id: call.id, crash: String(e?.stack ?? e) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

createInterface({ input: process.stdin }).on('line', handle).on('close', () => process.exit(0));
