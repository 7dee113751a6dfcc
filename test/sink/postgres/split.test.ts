import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { splitContainer } from '../../../src/sink/containers.ts';

const text = (bytes: Uint8Array | undefined): string | undefined => bytes && Buffer.from(bytes).toString();
const split = (json: string) => {
  const found = splitContainer(Buffer.from(json));
  return found && { elements: found.elements.map(text), rest: text(found.rest) };
};

describe('a container', () => {
  it('is cut into its elements as they stand', () => {
    const json = ' {"items" : [ {"body":"a,]}\\"\\\\"} ,\t1.50, "x" , [1,[2]],{ } ] } ';
    expect(split(json)).toEqual({
      elements: ['{"body":"a,]}\\"\\\\"}', '1.50', '"x"', '[1,[2]]', '{ }'],
      rest: undefined,
    });
  });

  it('keeps what else it said', () => {
    expect(split('{"version":2, "items":[1] ,"a":{"items":[3]}}')).toEqual({
      elements: ['1'],
      rest: '{"version":2,"a":{"items":[3]}}',
    });
  });

  it.each([
    '{}',
    '[]',
    '1',
    '"items"',
    '{"items":[]}',
    '{"items":{}}',
    '{"items":null}',
    '{"items":[1],"items":[2]}',
    '{"a":{"items":[1]}}',
  ])('is none when it reads %s', (json) => {
    expect(split(json)).toBeUndefined();
  });

  it('says what JSON.parse says, whatever is in it and however it is spaced', () => {
    fc.assert(
      fc.property(
        fc.array(fc.jsonValue(), { minLength: 1, maxLength: 5 }),
        fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 3 }),
        fc.nat(3),
        (logs, others, indent) => {
          const { items: _, ...rest } = others;
          const found = split(JSON.stringify({ ...rest, items: logs }, null, indent));
          expect(found?.elements.map((log) => JSON.parse(log as string))).toEqual(
            JSON.parse(JSON.stringify(logs)),
          );
          const container = JSON.parse(found?.rest ?? '{}');
          expect(container).toEqual(JSON.parse(JSON.stringify(rest)));
        },
      ),
    );
  });
});
