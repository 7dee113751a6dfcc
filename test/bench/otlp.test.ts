import { createHash } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { stamp } from '../../bench/load/body.ts';
import { parseLoadCommand } from '../../bench/load/command/flags.ts';
import { type OtlpKind, otlpBody } from '../../bench/otlp.ts';
import { seededRandom } from '../../bench/random.ts';
import { type Drawn, Workload } from '../../bench/workload.ts';
import { fromProtobuf } from '../support/otlp-reference.ts';

const TARGETS = [{ id: '1', key: 'k' }];
const workloadOf = (encoding: 'sdk' | 'none' | 'gzip', idPrefix?: string): Workload =>
  new Workload({
    ...{
      seed: 3,
      mix: { 'otlp-traces': 1, 'otlp-logs': 1 },
      encoding,
      targets: TARGETS,
      host: 'h',
      keepAlive: true,
    },
    idPrefix,
  });

/** Head and body of a request as they are sent. */
function sent({ lines, body }: Drawn, count: number): { head: string; body: Buffer } {
  const bytes = Buffer.concat([lines, body.bytes]);
  stamp(bytes, lines.length, { body, count });
  const end = bytes.indexOf('\r\n\r\n');
  const head = bytes.toString('latin1', 0, end);
  const plain = bytes.subarray(end + 4);
  return { head, body: head.includes('Content-Encoding: gzip') ? gunzipSync(plain) : plain };
}

describe.each(['otlp-traces', 'otlp-logs'] as const)('a request of %s', (kind: OtlpKind) => {
  it('is the same in both encodings', () => {
    const json = JSON.parse(otlpBody(kind, 'json', seededRandom(1)).toString());
    const message = kind === 'otlp-traces' ? 'Traces' : 'Logs';
    expect(fromProtobuf(message, otlpBody(kind, 'protobuf', seededRandom(1)))).toEqual(json);
  });
});

describe('a mix of OTLP', () => {
  it.each(['sdk', 'none', 'gzip'] as const)('in %s has a number of its own in each request', (encoding) => {
    const workload = workloadOf(encoding, 'a'.repeat(24));
    const paths = new Set<string>();
    for (let n = 0; n < 200; n++) {
      const drawn = workload.draw();
      const { head, body } = sent(drawn, n);
      expect(body.includes(`${'a'.repeat(24)}${n.toString(16).padStart(8, '0')}`)).toBe(true);
      const [, path = '', signal = ''] = /^POST (\/api\/1\/integration\/otlp\/v1\/(\w+)\/) /.exec(head) ?? [];
      paths.add(path);
      const of = createHash('sha256').update(`1\notlp_${signal}\n`).update(body).digest('hex').slice(0, 32);
      expect(drawn.eventIdOf?.(n)).toBe(of);
    }
    expect(paths.size).toBe(2);
  });

  it('is refused in an encoding in which its numbers cannot be changed', () => {
    const command = (encoding: string) => () =>
      parseLoadCommand(['--dsn', 'http://k@h:1/1', '--mix', 'event=1,otlp-logs=1', '--encoding', encoding]);
    for (const encoding of ['sdk', 'none', 'gzip']) expect(command(encoding)).not.toThrow();
    for (const encoding of ['deflate', 'br'])
      expect(command(encoding)).toThrow('--encoding: a mix with OTLP');
  });
});
