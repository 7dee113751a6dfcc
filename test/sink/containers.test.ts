import { describe, expect, it } from 'vitest';
import { filledContainer, toSend } from '../../src/sink/containers.ts';

const AUTO = '"version":2,"ingest_settings":{"infer_ip":"auto","infer_user_agent":"auto"}';
const FACTS = { clientAddress: '2001:db8::7', userAgent: 'a "b"/1' };
const ADDRESS = '"client.address":{"value":"2001:db8::7","type":"string"}';
const AGENT = '"user_agent.original":{"value":"a \\"b\\"/1","type":"string"}';
const filled = (text: string, index = 0, facts: typeof FACTS | { userAgent: string } = FACTS): string =>
  Buffer.from(filledContainer(Buffer.from(text), index, facts)).toString();

describe('a container that asks for what the server knows of its client', () => {
  it.each([
    ['{}', `{"attributes":{${ADDRESS},${AGENT}}}`],
    ['{"a":[1]}', `{"attributes":{${ADDRESS},${AGENT}},"a":[1]}`],
    ['{ "attributes" : { } }', `{ "attributes" : {${ADDRESS},${AGENT} } }`],
    ['{"attributes":{"x":{}},"y":1}', `{"attributes":{${ADDRESS},${AGENT},"x":{}},"y":1}`],
    [
      '{"attributes":{"client.address":{"value":"own"}}}',
      `{"attributes":{${AGENT},"client.address":{"value":"own"}}}`,
    ],
    ['{"attributes":1,"attributes":{"x":1}}', `{"attributes":1,"attributes":{${ADDRESS},${AGENT},"x":1}}`],
    ['{"inner":{"attributes":{}}}', `{"attributes":{${ADDRESS},${AGENT}},"inner":{"attributes":{}}}`],
  ])('gets it in the element %s', (element, expected) => {
    expect(filled(`{${AUTO},"items":[7,${element},${element}]}`)).toBe(
      `{${AUTO},"items":[7,${expected},${expected}]}`,
    );
    expect(filled(`{"items":[${element}],${AUTO}}`)).toBe(`{"items":[${expected}],${AUTO}}`);
  });

  it('gets only what it asks for and what is known', () => {
    const asks = '"version":2,"ingest_settings":{"infer_ip":"auto","infer_user_agent":"never"}';
    expect(filled(`{${asks},"items":[{}]}`)).toBe(`{${asks},"items":[{"attributes":{${ADDRESS}}}]}`);
    expect(filled(`{${AUTO},"items":[{}]}`, 0, { userAgent: FACTS.userAgent })).toBe(
      `{${AUTO},"items":[{"attributes":{${AGENT}}}]}`,
    );
  });

  it.each([
    ['it does not ask', '{"version":2,"items":[{}]}'],
    ['it asks in an element alone', `{"version":2,"items":[{${AUTO}}]}`],
    ['its version is another', `{${AUTO.replace('2', '1')},"items":[{}]}`],
    ['its settings are none', '{"version":2,"ingest_settings":"auto","items":[{}]}'],
    ['its settings are long', `{${AUTO.replace('{', `{"x":"${'y'.repeat(1_024)}",`)},"items":[{}]}`],
    ['its items are no list', `{${AUTO},"items":{}}`],
    ['its elements are no objects', `{${AUTO},"items":[[],null,"{}"]}`],
    ['its attributes are no object', `{${AUTO},"items":[{"attributes":null}]}`],
    ['it has too many elements', `{${AUTO},"items":[${Array(1_001).fill('{}').join(',')}]}`],
    ['it is longer than any that SDKs send', `{${AUTO},"items":[{"x":"${'y'.repeat(5 * 1024 * 1024)}"}]}`],
    ['it is no object', `[{${AUTO},"items":[{}]}]`],
  ])('stays as it is when %s', (_why, text) => {
    expect(filled(text)).toBe(text);
  });

  it('stays as it is far back in its envelope, so that a small envelope cannot swell', () => {
    const text = `{${AUTO},"items":[{}]}`;
    expect([filled(text, 9) === text, filled(text, 10) === text]).toEqual([false, true]);
  });
});

describe('a container of 5 MiB', () => {
  const MIB_5 = 5 * 1024 * 1024;
  const around = Buffer.byteLength('{"items":[{},""]}');
  const sent = (bytes: number): ReturnType<typeof toSend> => {
    const json = Buffer.from(`{"items":[{},"${'x'.repeat(bytes - around)}"]}`);
    expect(json).toHaveLength(bytes);
    const envelope = { projectId: '1', eventId: 'e', receivedAt: 0 };
    return toSend({ type: 'log', head: '', json, fields: { envelope, index: 0, header: '{}' } });
  };

  it('becomes rows; a larger one stays whole, since its search makes no pauses', () => {
    expect(sent(MIB_5).split?.elements).toHaveLength(2);
    expect(sent(MIB_5 + 1).split).toBeUndefined();
  });
});
