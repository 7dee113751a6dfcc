import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { makeBody, stamp } from '../../bench/load/body.ts';
import { ID_PLACEHOLDER } from '../../bench/payloads.ts';
import { seededRandom } from '../../bench/random.ts';

const ENVELOPE = Buffer.from(
  `{"event_id":"${ID_PLACEHOLDER}"}\n{"type":"event"}\n{"event_id":"${ID_PLACEHOLDER}","a":"é"}`,
);
const PLAIN = { encoding: 'none', chunked: false, contentType: undefined } as const;
const AT = 7;

/** The body as it stands in a request, after its headers. */
function stamped(options: Parameters<typeof makeBody>[1], count: number): { headers: string; body: Buffer } {
  const body = makeBody(ENVELOPE, options);
  const target = Buffer.alloc(AT + body.bytes.length);
  body.bytes.copy(target, AT);
  stamp(target, AT, { body, count });
  const headEnd = target.indexOf('\r\n\r\n');
  return { headers: target.toString('latin1', AT, headEnd), body: target.subarray(headEnd + 4) };
}
const withId = (digits: string): string =>
  ENVELOPE.toString().replaceAll(ID_PLACEHOLDER, ID_PLACEHOLDER.slice(0, 24) + digits);

describe('a request body', () => {
  it('carries the number of the request as the last digits of every id', () => {
    const { headers, body } = stamped(PLAIN, 0xdeadbeef);
    expect(headers).toBe(`Content-Length: ${ENVELOPE.length}`);
    expect(body.toString()).toBe(withId('deadbeef'));
  });

  it('is one chunk and an end when chunked', () => {
    const { headers, body } = stamped({ ...PLAIN, chunked: true }, 1);
    expect(headers).toBe('Transfer-Encoding: chunked');
    expect(body.toString()).toBe(`${ENVELOPE.length.toString(16)}\r\n${withId('00000001')}\r\n0\r\n\r\n`);
  });

  it('is valid gzip whatever number is written into it', () => {
    const random = seededRandom(1);
    for (const count of [
      0,
      1,
      0xffffffff,
      ...Array.from({ length: 50 }, () => Math.floor(random() * 2 ** 32)),
    ]) {
      const { body } = stamped({ ...PLAIN, encoding: 'gzip' }, count);
      // gunzip checks CRC and length itself.
      const line = gunzipSync(body).toString().split('\n')[0];
      expect(line).toBe(withId(count.toString(16).padStart(8, '0')).split('\n')[0]);
    }
  });

  it.each([
    ['deflate', inflateSync],
    ['br', brotliDecompressSync],
  ] as const)('leaves the id to the server in %s', (encoding, decode) => {
    expect(
      decode(stamped({ ...PLAIN, encoding }, 9).body)
        .toString()
        .split('\n')[0],
    ).toBe('{}');
  });
});
