#!/usr/bin/env python3
"""run.py --zerohop BIN --tool zoo_tool --models DIR --work DIR [--port N] [--json] [MODEL …]: every tiny model, served and judged.

Serves each model twice and judges every answer with zoo_tool, which computes it in a fresh context:

    full    the defaults of the caches: the same again, a growing conversation, a divergence in the middle, six at once with
            one beginning, drafts, clients that leave in the middle of a prefill, long prompts beside each other
    small   a pool that holds two of six prompts: eviction, host memory, pauses

Wrong is an answer that a fresh context would not give (near ties aside), an error, a server that dies, and a model
that is refused although it should be served (or served although it has nothing to say). Exits 1 when something is wrong.
"""
import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

# Embedding, diffusion and encoder-decoder models, and what llama.cpp itself computes with one sequence only or not at all.
REFUSED = re.compile(r'.*bert.*|.*embed(?!ded).*|t5.*|dream|llada.*|rnd1.*|wavtokenizer.*|diffusion.*')
MAY_BE_REFUSED = re.compile(r'plamo2|rwkv6qwen2|plm|qwen3tts.*|chameleon|cogvlm|paddleocr.*|talkie.*|graniteswitch.*')

arguments = argparse.ArgumentParser()
for name in ('zerohop', 'tool', 'models', 'work'):
    arguments.add_argument('--' + name, required=True)
arguments.add_argument('--port', type=int, default=18480)
arguments.add_argument('--json', action='store_true', help='only the last line')
arguments.add_argument('model', nargs='*')
args = arguments.parse_args()
work = Path(args.work)
work.mkdir(parents=True, exist_ok=True)
HEADERS = {'content-type': 'application/json', 'anthropic-version': '2023-06-01'}
WORDS = [a + b + c for a in 'bdfgklmnprstvz' for b in 'aeiou' for c in 'lmnrstkd']


def words(seed, count):
    pick = random.Random(seed)
    return ' '.join(pick.choice(WORDS) for _ in range(count))


def user(text):
    return {'role': 'user', 'content': text}


def rendered(system, messages):
    first = [{'role': 'system', 'content': system}] if system else []
    out = ''.join(f'<|im_start|>{m["role"]}\n{m["content"]}<|im_end|>\n' for m in [*first, *messages])
    return out + '<|im_start|>assistant\n'


class Server:
    def __init__(self, model, lines, cache_lines):
        config = work / 'zoo.toml'
        config.write_text(
            f'[server]\nlisten = ["127.0.0.1:{args.port}"]\nlisten_tls = []\n[engine]\ncache_dir = "{work}/cache"\n'
            f'[cache]\n{cache_lines}\n'
            f'[[model]]\nid = "m"\npath = "{model}"\nthreads = 1\nflash_attention = "on"\nkv_type = "f16"\n{lines}\n')
        self.log = work / 'zoo.log'
        self.process = subprocess.Popen([args.zerohop, 'serve', '--config', str(config)], stdout=open(self.log, 'w'),
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        env=dict(os.environ, ZEROHOP_KEYS=str(work / 'nokeys.json')))
        self.ready = False
        until = time.time() + 150
        while not self.ready and self.process.poll() is None and time.time() < until:
            try:
                self.ready = self.get('/readyz')[0] == 200
            except OSError:
                time.sleep(0.1)

    def get(self, path):
        client = http.client.HTTPConnection('127.0.0.1', args.port, timeout=5)
        client.request('GET', path)
        answer = client.getresponse()
        body = answer.read()
        client.close()
        return answer.status, body

    def post(self, system, messages, tokens, leave_after=None):
        """(status, body); None for a client that left."""
        client = http.client.HTTPConnection('127.0.0.1', args.port, timeout=240)
        body = {'model': 'm', 'max_tokens': tokens, 'temperature': 0, 'system': system, 'messages': messages}
        try:
            client.request('POST', '/v1/messages', json.dumps(body), HEADERS)
            if leave_after is not None:
                time.sleep(leave_after)
                return None
            answer = client.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            client.close()

    def stop(self):
        died = self.process.poll()
        if died is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                died = 'does not stop'
        return died

    def said(self):
        lines = [line for line in self.log.read_text(errors='replace').splitlines() if line.strip()]
        return lines[-1][-200:] if lines else ''


class Judge:
    def __init__(self, model):
        self.process = subprocess.Popen([args.tool, 'judge', model], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def ask(self, prompt, answer):
        self.process.stdin.write(json.dumps({'prompt': prompt, 'answer': answer}) + '\n')
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline() or '{"error": "the judge died"}')

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Visit:
    """One model on one server: asks, and counts what is wrong."""

    def __init__(self, server, judge):
        self.server, self.judge = server, judge
        self.answers = self.read = self.prompt = 0
        self.wrong = []

    def note(self, test, what):
        self.wrong.append(f'{test}: {what}')

    def take(self, test, system, messages, got):
        self.answers += 1
        if isinstance(got, str) or got[0] != 200:
            self.note(test, got if isinstance(got, str) else f'{got[0]} {json.dumps(got[1])[:200]}')
            return ''
        text = ''.join(block['text'] for block in got[1]['content'])
        usage = got[1]['usage']
        prompt = usage['input_tokens'] + usage['cache_read_input_tokens'] + usage['cache_creation_input_tokens']
        self.prompt += prompt
        self.read += usage['cache_read_input_tokens']
        found = self.judge.ask(rendered(system, messages), text)
        if 'error' in found:
            self.note(test, found['error'])
        elif found['prompt_tokens'] != prompt or found['answer_tokens'] != usage['output_tokens']:
            self.note(test, f'tokens {prompt} + {usage["output_tokens"]}, the judge has '
                            f'{found["prompt_tokens"]} + {found["answer_tokens"]}')
        elif found['wrong_at'] >= 0:
            self.note(test, f'token {found["wrong_at"]} is wrong by {found["gap"]:.2f} ({usage["cache_read_input_tokens"]} of {prompt} cached)')
        return text

    def post(self, *ask):
        try:
            return self.server.post(*ask)
        except (OSError, http.client.HTTPException) as e:
            return repr(e)

    def run(self, test, system, messages, tokens=24):
        return self.take(test, system, messages, self.post(system, messages, tokens))

    def together(self, test, asks):
        got = [None] * len(asks)

        def one(i):
            got[i] = self.post(*asks[i])
        threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for (system, messages, _), answer in zip(asks, got):
            self.take(test, system, messages, answer)


def full(visit):
    system, first = words(1, 200), [user(words(2, 60))]
    text = visit.run('first', system, first)
    visit.run('again', system, first)
    grown = first
    for i in range(2):
        grown = [*grown, {'role': 'assistant', 'content': text}, user(words(3 + i, 30))]
        text = visit.run('grown', system, grown)
    parts = system.split(' ')
    visit.run('diverging', ' '.join([*parts[:100], words(5, 1), *parts[101:]]), first)
    visit.run('other question', system, [user(words(6, 40))])
    visit.run('first once more', system, first)
    shared = words(10, 300)
    visit.together('six at once', [(shared, [user(words(20 + i, 20))], 16) for i in range(6)])
    visit.run('one of six again', shared, [user(words(23, 20))])
    for i in range(4):  # earlier outputs of the structure propose drafts, some refused
        visit.run('drafts', words(30, 60), [user(f'<task>{words(31, 40)}</task><value>{words(40 + i % 3, 3)}</value>')])
    for i in range(6):
        long = [user(words(50 + i % 2, 2000))]
        visit.server.post('', long, 8, leave_after=0.02 + 0.04 * i)
        time.sleep(0.1)
        if i % 2:
            visit.run('after a cancel', '', long, 8)
    visit.together('long beside', [('', [user(words(60, 1500))], 8), ('', [user(words(61, 1500))], 8), ('', [user(words(62, 40))], 64)])
    visit.run('longer', '', [user(words(60, 1500)), {'role': 'assistant', 'content': words(63, 3)}, user(words(64, 20))], 8)


def small(visit):
    prompts = [words(100 + i, 350) for i in range(6)]
    for turn in range(2):
        visit.together('crowd', [(prompt, [user(words(110 + turn, 10))], 24) for prompt in prompts])
        for i, prompt in enumerate(prompts):
            visit.run('one after another', prompt, [user(words(120 + i % 2, 20))], 12)


PASSES = (
    ('full', full, '', ''),
    ('small', small, 'context_tokens = 1024\nkv_tokens = 1024\nmax_sequences = 2', 'host_mb = 64'),
)


def visit_model(path):
    """A row of the table: what was computed and what is wrong."""
    name = path.stem.removesuffix('-moe')
    row = {'model': path.stem, 'answers': 0, 'read': 0, 'prompt': 0, 'wrong': [], 'note': ''}
    for title, test, lines, cache_lines in PASSES:
        server = Server(path, lines, cache_lines)
        if not server.ready:
            died = server.stop()
            expected = died == 2 and (REFUSED.fullmatch(name) or MAY_BE_REFUSED.fullmatch(name))
            row['note'] = f'refused: {server.said()}'
            if not expected:
                row['wrong'].append(f'{title}: does not start ({died}): {server.said()}')
            return row
        if REFUSED.fullmatch(name):
            row['wrong'].append('is served, and has nothing to say')
            server.stop()
            return row
        judge = Judge(path)
        visit = Visit(server, judge)
        try:
            test(visit)
        except (OSError, http.client.HTTPException) as e:
            visit.note('end', repr(e))
        finally:  # also where this run is ended from outside
            judge.stop()
            died = server.stop()
        if died is not None:
            visit.note('server', f'{died}: {server.said()}')
        row['wrong'] += [f'{title}: {what}' for what in visit.wrong]
        for key in ('answers', 'read', 'prompt'):
            row[key] += getattr(visit, key)
    return row


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    paths = sorted(Path(args.models).glob('*.gguf'))
    if args.model:
        paths = [p for p in paths if p.stem in args.model or p.stem.removesuffix('-moe') in args.model]
    say = (lambda *_: None) if args.json else (lambda *text: print(*text, flush=True))
    say(f'{"model":24} {"answers":>7} {"cached":>7} {"wrong":>6}')
    rows = []
    for path in paths:
        row = visit_model(path)
        rows.append(row)
        say(f'{row["model"]:24} {row["answers"]:7} {100 * row["read"] // max(row["prompt"], 1):6}% {len(row["wrong"]):6} {row["note"][:120]}')
        for what in row['wrong'][:8]:
            say('    ', what)
    wrong = sum(len(row['wrong']) for row in rows)
    print(json.dumps({'zoo_models': len(rows), 'zoo_answers': sum(row['answers'] for row in rows), 'zoo_wrong': wrong,
                      'models_wrong': [row['model'] for row in rows if row['wrong']]}))
    sys.exit(1 if wrong or not rows else 0)


if __name__ == '__main__':
    main()
