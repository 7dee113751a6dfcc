/** JSON texts before and after, byte for byte. */
import { describe, expect, it } from 'vitest';
import { scrubbed } from '../../../src/processor/scrub/scrubber.ts';
import { type Privacy, SCRUBS } from '../../../src/stream/frame.ts';

const ALL: Privacy = { scrub: SCRUBS, names: [] };
const scrub = (text: string, privacy: Partial<Privacy> = ALL): string =>
  Buffer.from(scrubbed(Buffer.from(text), { scrub: [], names: [], ...privacy })).toString();

describe('a payload', () => {
  it('without anything private is the same bytes', () => {
    const json = Buffer.from(
      `{"message":"hello \\u00fc \\"x\\"","n":12345678901234567890.10,"a":[],"a":{},"t":1.0e5, "url":"https://a.io/b?c=d","big":4242424242424242}`,
    );
    expect(scrubbed(json, ALL)).toBe(json);
  });

  it.each([
    ['{"password":"x"}', '{"password":"[Filtered]"}'],
    ['{"Password" : [1,{"a":"]"}] , "b":2}', '{"Password" : "[Filtered]" , "b":2}'],
    [
      '{"token":1.5e3,"secret":true,"cookie":null}',
      '{"token":"[Filtered]","secret":"[Filtered]","cookie":null}',
    ],
    ['{"pass\\u0077ord":"x"}', '{"pass\\u0077ord":"[Filtered]"}'],
    ['{"a":{"b":[{"api_key":{"deep":{}}}]}}', '{"a":{"b":[{"api_key":"[Filtered]"}]}}'],
    ['[["Cookie","a=b"],["Accept","x"]]', '[["Cookie","[Filtered]"],["Accept","x"]]'],
    ['["cookie","a","b"]', '["cookie","a","b"]'],
    ['["cookie" , "a" ]', '["cookie" , "[Filtered]" ]'],
    ['["cookie",["cookie","a"]]', '["cookie","[Filtered]"]'],
    [
      '{"attributes":{"password":{"value":"x","type":"string"},"a":{"value":1,"type":"integer"}}}',
      '{"attributes":{"password":{"value":"[Filtered]","type":"string"},"a":{"value":1,"type":"integer"}}}',
    ],
    ['{"user":{"ip_address":"1.2.3.4","id":"7"}}', '{"user":{"ip_address":null,"id":"7"}}'],
    ['{"user":{"ip_address":"{{auto}}"}}', '{"user":{"ip_address":null}}'],
    [
      '{"attributes":{"user.ip_address":{"type":"string","value":"{{auto}}"}}}',
      '{"attributes":{"user.ip_address":{"type":"string","value":null}}}',
    ],
    ['{"data":{"user.ip_address":"1.2.3.4"}}', '{"data":{"user.ip_address":null}}'],
    ['{"bob@x.io":"to \\"bob@x.io\\"\\n"}', '{"[Filtered]":"to \\"[Filtered]\\"\\n"}'],
    ['"bob\\u0040x.io"', '"[Filtered]"'],
    [
      '{"body":"{\\"password\\":\\"x\\",\\"n\\":1.10}"}',
      '{"body":"{\\"password\\":\\"[Filtered]\\",\\"n\\":1.10}"}',
    ],
    ['{"body":" [[\\"cookie\\",\\"x\\"]]"}', '{"body":" [[\\"cookie\\",\\"[Filtered]\\"]]"}'],
    [
      JSON.stringify({ a: JSON.stringify({ b: JSON.stringify({ c: 'bob@x.io' }) }) }),
      JSON.stringify({ a: JSON.stringify({ b: JSON.stringify({ c: '[Filtered]' }) }) }),
    ],
    ['{"body":"{\\"password\\":\\"x"}', '{"body":"{\\"password\\":\\"[Filtered]"}'],
    ['"[1] from 10.0.0.1"', '"[1] from [Filtered]"'],
    ['{"query_string":"token=x&a=b"}', '{"query_string":"token=[Filtered]&a=b"}'],
    ['{"data":"user%5Bpassword%5D=x"}', '{"data":"user%5Bpassword%5D=[Filtered]"}'],
    ['{"user%5bpassword%5d":"x"}', '{"user%5bpassword%5d":"[Filtered]"}'],
    ['{"a":"Authorization: Bearer x"}', '{"a":"Authorization: [Filtered]"}'],
    ['{"a":"AUTHORIZATION: Basic x"}', '{"a":"AUTHORIZATION: [Filtered]"}'],
    [
      '{"a":"{\\"b\\":\\"password=\\\\\\"x y\\\\\\" z"}',
      '{"a":"{\\"b\\":\\"password=\\\\\\"[Filtered]\\\\\\" z"}',
    ],
    ['["[[dead:beef::cafe]]"]', '["[[[Filtered]]]"]'],
    [
      '[{"a":"[[[{\\"token\\":1}]]]","token":1}]',
      '[{"a":"[[[{\\"token\\":\\"[Filtered]\\"}]]]","token":"[Filtered]"}]',
    ],
  ])('%s', (text, clean) => {
    expect(scrub(text)).toBe(clean);
    expect(scrub(clean)).toBe(clean);
  });

  it('loses only what the settings name', () => {
    const text =
      '{"password":"a","x":"bob@x.io 10.0.0.1 4242424242424242","ip_address":"10.0.0.1","ssn":"7"}';
    const values = (privacy: Partial<Privacy>): unknown[] => Object.values(JSON.parse(scrub(text, privacy)));
    const [a, b, c, d] = Object.values(JSON.parse(text)) as string[];
    expect(values({})).toEqual([a, b, c, d]);
    expect(values({ scrub: ['emails'] })).toEqual([a, b?.replace('bob@x.io', '[Filtered]'), c, d]);
    expect(values({ scrub: ['cards'] })).toEqual([a, b?.replace(/\d{16}/, '[Filtered]'), c, d]);
    expect(values({ scrub: ['ips'] })).toEqual([a, b?.replace('10.0.0.1', '[Filtered]'), null, d]);
    expect(values({ scrub: ['user-ip'] })).toEqual([a, b, null, d]);
    expect(values({ scrub: ['keys'] })).toEqual(['[Filtered]', b, c, d]);
    expect(values({ names: ['ssn'] })).toEqual([a, b, c, '[Filtered]']);
  });

  it('has the first 4,096 bytes of a long name compared', () => {
    const long = 'x'.repeat(4_096);
    const text = (name: string, value: string): string => JSON.stringify({ [name]: value });
    expect(scrub(text(`password_${long}`, 'a'))).toBe(text(`password_${long}`, '[Filtered]'));
    expect(scrub(text(`${long}_password`, 'a'))).toBe(text(`${long}_password`, 'a'));
  });

  it('gets the address of its client where it asks for it', () => {
    const filled = (text: string): string => scrub(text, { clientAddress: '2001:db8::1' });
    expect(filled('{"user":{"ip_address":"{{auto}}"},"x":"{{auto}}"}')).toBe(
      '{"user":{"ip_address":"2001:db8::1"},"x":"{{auto}}"}',
    );
    expect(filled('{"attributes":{"user.ip_address":{"type":"string","value":"{{auto}}"}}}')).toBe(
      '{"attributes":{"user.ip_address":{"type":"string","value":"2001:db8::1"}}}',
    );
    for (const text of ['{"ip_address":"1.2.3.4"}', '{"ip_address":null}', '{"ip_address":["{{auto}}"]}'])
      expect(filled(text)).toBe(text);
  });

  it.each([
    ['nested as deep as it likes', '['.repeat(1_000_000) + ']'.repeat(1_000_000)],
    ['of objects', `${'{"a":'.repeat(300_000)}1${'}'.repeat(300_000)}`],
    ['of pairs that are none', `${'["cookie",'.repeat(200_000)}1${']'.repeat(200_000)}`],
    ['of texts that are no JSON', JSON.stringify(Array(20_000).fill('[[[[{"token":'))],
  ])('%s takes seconds at most', (_what, text) => {
    const began = performance.now();
    scrub(text);
    expect(performance.now() - began).toBeLessThan(20_000);
  });

  /** Written so that each level costs a few characters more, not twice as many. */
  const inStrings = (levels: number, innermost: string): string => {
    let text = innermost;
    for (let level = 0; level < levels; level++)
      text = `["${text.replaceAll('\\', '\\u005c').replaceAll('"', '\\u0022')}"]`;
    return text;
  };

  it('as JSON in a string, in a string, … is read some levels deep, and removed below them', () => {
    const secret = '{"password":"hunter2"}';
    for (const levels of [1, 8]) {
      let clean: unknown = scrub(inStrings(levels, secret));
      for (let level = 0; level < levels; level++) [clean] = JSON.parse(clean as string) as unknown[];
      expect(clean).toBe('{"password":"[Filtered]"}');
    }
    expect(scrub(inStrings(9, secret))).not.toContain('hunter2');
    const deep = inStrings(500, secret);
    const runs = [1, 2, 3].map(() => {
      const before = process.cpuUsage();
      scrub(deep);
      return process.cpuUsage(before).user / 1000;
    });
    // Read at every level it would take hundreds of times as long.
    expect(Math.min(...runs)).toBeLessThan(1_000);
  });
});
