/** Each warning and error that the programs log is findable in the runbook. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const SRC = new URL('../src/', import.meta.url);
const CALL = /\blog\??(?:\.(?:warn|error|fatal)|\[\w+\])\(/gi;
/** A request that fails logs the reason that these get (ingest/http/endpoint-request.ts). */
const FAILURE = /\bthis\.(?:fail|#refuseUnqueued)\(/g;

/** The text of a call's arguments, up to its closing parenthesis. */
function argumentsAt(text: string, from: number): string {
  let [depth, quote] = [1, ''];
  let at = from;
  for (; depth > 0; at++) {
    const char = text[at];
    if (quote) {
      if (char === '\\') at++;
      else if (char === quote) quote = '';
    } else if (char === "'" || char === '"' || char === '`') quote = char;
    else if (char === '(') depth++;
    else if (char === ')') depth--;
  }
  return text.slice(from, at - 1);
}

/** Literals of more than one word: the messages. */
const messagesIn = (text: string, calls = CALL): string[] =>
  [...text.matchAll(calls)].flatMap(({ index, 0: call }) =>
    [...argumentsAt(text, index + call.length).matchAll(/'((?:[^'\\]|\\.)*)'|"([^"]*)"|`([^`$]*)/g)]
      .map(([, single, double, template]) => (single ?? double ?? template ?? '').trim())
      .filter((message) => message.includes(' ')),
  );

const messages = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts'))
  .flatMap((name) => {
    const text = readFileSync(new URL(name, SRC), 'utf8');
    return [...messagesIn(text), ...(name.startsWith('ingest/http/') ? messagesIn(text, FAILURE) : [])];
  });

it('finds messages', () => {
  expect(messages).toContain('processor: no frames to be had, asking again');
  expect(messages).toContain('projects: bucket not readable, trying again');
  expect(messages).toContain('the quota could not be counted');
  expect(new Set(messages).size).toBeGreaterThan(50);
  expect(messagesIn("log.warn({ a: f('x y') }, isOld ? 'it is old' : `it is new`)")).toEqual([
    'x y',
    'it is old',
    'it is new',
  ]);
});

it('are all in docs/operations.md', () => {
  const runbook = readFileSync(new URL('../docs/operations.md', import.meta.url), 'utf8');
  expect([...new Set(messages)].filter((message) => !runbook.includes(message)).sort()).toEqual([]);
});
