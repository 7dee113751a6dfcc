/** The command line of the load tester: what it means, and that an error names its option. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { hasZstd } from '../../bench/load/body.ts';
import { type Defaults, parseLoadCommand } from '../../bench/load/command/flags.ts';
import { UsageError } from '../../bench/load/command/values.ts';
import { settingsOf } from '../../bench/load/document.ts';
import { renewed } from '../../bench/load/send/corpus.ts';
import { ID_PLACEHOLDER } from '../../bench/payloads.ts';
import { Workload } from '../../bench/workload.ts';

const dir = mkdtempSync(join(tmpdir(), 'sluice-flags-'));
const file = (name: string, text: string | Buffer): string => {
  writeFileSync(join(dir, name), text);
  return join(dir, name);
};
afterAll(() => rmSync(dir, { recursive: true }));

const DSN = ['--dsn', 'http://abc@h:81/42'];
const parse = (...args: string[]) => parseLoadCommand([...DSN, ...args]);

describe('a DSN', () => {
  it('names host, project and key', () => {
    const { load, thresholds } = parse('--rate', '5', '--max-p99', '20', '--no-keep-alive');
    expect(load).toMatchObject({ url: 'http://h:81', targets: [{ id: '42', key: 'abc' }], keepAlive: false });
    expect(load.segments).toEqual([{ name: '5/s', fromMs: 0, toMs: 10_000, fromRate: 5, toRate: 5 }]);
    expect(thresholds.maxP99Ms).toBe(20);
  });

  it('may have a path before the project, and there may be a file of them', () => {
    const path = file('dsns', '# two\nhttp://k1@h/sluice/eu/7\n\nhttp://k2@h/8\n');
    const { load } = parseLoadCommand(['--dsn-file', path, '--host', 'public.example', '--header', 'X-A: 1']);
    expect(load.targets).toEqual([
      { id: '7', key: 'k1', prefix: '/sluice/eu' },
      { id: '8', key: 'k2' },
    ]);
    const workload = new Workload({ ...load, host: load.host ?? '', keepAlive: true });
    const heads = Array.from({ length: 200 }, () => workload.draw().lines.toString());
    expect(heads.some((head) => head.startsWith('POST /sluice/eu/api/7/envelope/'))).toBe(true);
    for (const head of heads) expect(head).toMatch(/\r\nHost: public\.example\r\n(.*\r\n)*X-A: 1\r\n/);
  });

  it('is the running dev’s where none is named', () => {
    const defaults: Defaults = {
      dsn: 'http://k@localhost:8080/1',
      admin: 'http://localhost:8081',
      sink: 'ndjson:/s',
    };
    expect(parseLoadCommand(['--verify'], defaults)).toMatchObject({
      load: { url: 'http://localhost:8080' },
      admin: 'http://localhost:8081',
      verify: { sink: 'ndjson:/s', waitMs: 60_000, lateMs: 10_000 },
    });
    // The admin port of dev knows nothing of another server.
    expect(parseLoadCommand(DSN, defaults).admin).toBeUndefined();
  });
});

describe('a plan', () => {
  it('is made of stages and spikes', () => {
    const { load } = parse('--stages', '30s:1000,0s:2000,1m:2000', '--spike', '40s+5s:9000');
    expect(load.segments?.map(({ name, fromMs, toMs }) => [name, fromMs, toMs])).toEqual([
      ['0 → 1000/s', 0, 30_000],
      ['2000/s', 30_000, 40_000],
      ['spike 9000/s', 40_000, 45_000],
      ['2000/s', 45_000, 90_000],
    ]);
  });

  it.each([
    ['--until', '2000-01-01T00:00:00Z'],
    ['--abort-on', 'failures>10%'],
    ['--abort-on', 'p95>4'],
    ['--abort-on', 'p99.9>19'],
  ])('ends by %s %s', (...args) => {
    const second = {
      second: 1,
      stage: 0,
      sent: 900,
      ok: 800,
      failed: 200,
      statuses: {},
      open: 0,
      ms: 1_000,
      ...{ p50Ms: 1, p90Ms: 3, p95Ms: 5, p99Ms: 9, p999Ms: 20 },
    };
    const { stop } = parse(...args);
    const found = [1, 2, 3].map(() => stop?.(second)).at(-1);
    expect(found).toMatchObject({ failed: args[0] === '--abort-on' });
    expect(found?.reason).toContain(`(${args[0]})`);
  });
});

describe('habits', () => {
  it('of writing times and numbers work', () => {
    const { load } = parse('--rate', '1.5k', '--duration', '1m30s', '--until', '2M');
    expect(load.segments?.[0]).toMatchObject({ fromRate: 1_500, toMs: 90_000 });
    expect(load.requestsMax).toBe(2_000_000);
  });

  it.each([
    ['--vus', '--connections'],
    ['-c', '--connections'],
    ['--rps=5', '--rate'],
    ['-R', '--rate'],
    ['-d', '--duration'],
    ['--threads', '--processes'],
    ['--iterations', '--until'],
  ])('of another tool are answered: %s', (theirs, ours) => {
    expect(() => parse(theirs, '5')).toThrow(`is ${ours} here`);
  });
});

describe('several processes', () => {
  it.each([
    [['--find-knee'], 'leave --processes out, or give several the rates by --stages'],
    [['--verify', '--sink', 'ndjson:/s'], 'leave --processes out, or verify at a rate that one sends'],
    [['--verify-with', 'cat'], 'give each --part a --verify-with'],
    [['--part', '0/2'], 'start a process for each part'],
    [['--stream', 's.ndjson'], 'start a process for each --part with a --stream'],
  ])('do not go with %j, and the error says what to do', (args, what) => {
    expect(() => parse('--rate', '50', ...args, '--processes', '2')).toThrow(UsageError);
    const said = `--processes: does not go with ${args[0]}: `;
    expect(() => parse('--rate', '50', ...args, '--processes', '2')).toThrow(said);
    expect(() => parse('--rate', '50', ...args, '--processes', '2')).toThrow(what);
    expect(parse('--rate', '50', ...args, '--processes', '1').processes).toBe(1);
  });

  it('do not make the same projects', () => {
    const args = ['--projects', '5', '--api', 'http://h', '--rate', '50'];
    expect(() => parseLoadCommand([...args, '--processes', '2'])).toThrow('name them by --dsn-file');
  });

  it('of which each is a part go with --verify-with and --stream, and not with --verify', () => {
    const args = ['--rate', '50', '--part', '0/2'] as const;
    expect(parse(...args, '--verify-with', 'cat', '--stream', 's.ndjson')).toMatchObject({
      verify: { command: 'cat' },
      output: { stream: 's.ndjson' },
    });
    expect(() => parse(...args, '--verify')).toThrow('the sink counts the envelopes of all parts');
    expect(() => parse(...args, '--find-knee')).toThrow('every step needs one process');
  });
});

describe('an error', () => {
  it.each([
    [[], '--dsn'],
    [['--dsn', 'http://h/1'], '--dsn'],
    [['--dsn', 'ftp://k@h/1'], '--dsn'],
    [[...DSN, '--dsn', 'http://k@other/1'], '--url'],
    [['--dsn-file', '/none'], '--dsn-file'],
    [['--dsn-file', file('empty', '# nothing\n')], '--dsn-file'],
    [['--dsn-file', file('wrong', 'http://k@h/1\nnonsense\n')], '--dsn-file, line 2'],
    [[...DSN, '--projects', '3', '--api', 'http://h'], '--projects'],
    [['--projects', '3'], '--api'],
    [['--projects', '0', '--api', 'http://h'], '--projects'],
    [[...DSN, '--url', 'h:80'], '--url'],
    [[...DSN, '--header', 'no colon'], '--header'],
    [[...DSN, '--header', 'Content-Length: 4'], '--header'],
    [[...DSN, '--rate', 'fast'], '--rate'],
    [[...DSN, '--rate', '0'], '--rate'],
    [[...DSN, '--duration', '5 days'], '--duration'],
    [[...DSN, '--stages', '30s'], '--stages'],
    [[...DSN, '--stages', '0s:5'], '--stages'],
    [[...DSN, '--stages', '3s:5', '--duration', '3s'], '--duration'],
    [[...DSN, '--spike', '1s+1s:5'], '--spike'],
    [[...DSN, '--rate', '5', '--spike', '1s:5'], '--spike'],
    [[...DSN, '--find-knee', '--stages', '3s:5'], '--find-knee'],
    [[...DSN, '--step', '3s'], '--step'],
    [[...DSN, '--until', 'tomorrow'], '--until'],
    [[...DSN, '--abort-on', 'p99>5%'], '--abort-on'],
    [[...DSN, '--fail-on', 'p42>5'], '--fail-on'],
    [[...DSN, '--find-knee', '--until', '5'], '--until'],
    [[...DSN, '--json', '-', '--stream', '-'], '--stream'],
    [[...DSN, '--connections', '0'], '--connections'],
    [[...DSN, '--rare-share', '20%'], '--rare-share'],
    [[...DSN, '--rare-clients', '5', '--rare-share', '120%'], '--rare-share'],
    [[...DSN, '--timeout', '0'], '--timeout'],
    [[...DSN, '--mix', 'nonsense'], '--mix'],
    [[...DSN, '--sizes', '2x'], '--sizes'],
    [[...DSN, '--corpus', '/none'], '--corpus'],
    [[...DSN, '--encoding', 'rot13'], '--encoding'],
    [[...DSN, '--expect', '42'], '--expect'],
    [[...DSN, '--max-failure-rate', '-1'], '--max-failure-rate'],
    [[...DSN, '--admin', 'localhost:8081'], '--admin'],
    [[...DSN, '--unknown'], '--unknown'],
    ...(hasZstd ? [] : [[[...DSN, '--encoding', 'zstd'], 'Node.js 22.15']]),
  ] as [string[], string][])('in %j names %s', (args, named) => {
    expect(() => parseLoadCommand(args)).toThrow(UsageError);
    expect(() => parseLoadCommand(args)).toThrow(named);
  });

  it('does not repeat a key', () => {
    expect(() => parseLoadCommand(['--dsn', 'http://secret@h'])).toThrow(/^((?!secret).)*$/);
    const settings = settingsOf([
      '--dsn',
      'http://secret@h/1',
      '--header',
      'Authorization: secret',
      '--verify',
    ]);
    expect(settings).toEqual({ dsn: 'http://…@h/1', header: 'Authorization: …', verify: 'yes' });
  });
});

describe('what is sent', () => {
  const target = { host: 'h', keepAlive: true, targets: [{ id: '1', key: 'k' }], seed: 1 } as const;

  it('has every kind of the mix, and the sizes that were asked for', () => {
    const { load } = parse(
      '--mix',
      'event=5,span,session,check_in,feedback,client_report,attachment',
      '--sizes',
      '10k=1,50k=1',
      '--encoding',
      'none',
    );
    const workload = new Workload({ ...load, ...target });
    const seen = new Set<string>();
    const eventBytes: number[] = [];
    for (let n = 0; n < 2_000; n++) {
      const { body, kind } = workload.draw();
      seen.add(workload.kinds[kind] as string);
      if (workload.kinds[kind] === 'event') eventBytes.push(body.bytes.length);
    }
    expect([...seen].sort()).toEqual([
      'attachment',
      'check_in',
      'client_report',
      'event',
      'feedback',
      'session',
      'span',
    ]);
    expect(Math.min(...eventBytes)).toBeGreaterThan(10_000);
    expect(eventBytes.filter((bytes) => bytes > 50_000).length).toBeGreaterThan(eventBytes.length / 3);
  });

  it('is a recorded envelope under another id, without its DSN', () => {
    const id = '0123456789abcdef0123456789abcdef';
    const recorded = `{"event_id":"${id}","dsn":"http://k@h/1","sdk":{"name":"a"}}\n{"type":"event","length":${id.length + 15}}\n{"event_id":"${id}"}`;
    const again = renewed(Buffer.from(recorded));
    expect(again?.kind).toBe('event');
    expect(again?.envelope.toString()).toBe(
      `{"event_id":"${ID_PLACEHOLDER}","sdk":{"name":"a"}}\n{"type":"event","length":${id.length + 15}}\n{"event_id":"${ID_PLACEHOLDER}"}`,
    );
    expect(renewed(Buffer.from('no envelope'))).toBeUndefined();
    const folder = mkdtempSync(join(tmpdir(), 'sluice-corpus-'));
    writeFileSync(join(folder, 'a.envelope'), recorded);
    writeFileSync(join(folder, 'b.envelope.gz'), gzipSync('{}\n{"type":"session"}\n{}'));
    const workload = new Workload({ ...parse('--corpus', folder, '--encoding', 'none').load, ...target });
    expect(workload.kinds).toEqual(['event', 'session']);
    const bodies = new Set(Array.from({ length: 50 }, () => workload.draw().body));
    for (const { digitsAt } of bodies) expect(digitsAt.length).toBeGreaterThan(0);
    writeFileSync(join(folder, 'c'), 'nonsense');
    expect(() => parse('--corpus', folder)).toThrow(/--corpus: .*c is no envelope/);
    rmSync(folder, { recursive: true });
  });

  it('has ids of the run alone, and the same checksum whatever they are', () => {
    const { load } = parse();
    const prefixes = ['a'.repeat(24), 'b'.repeat(24)];
    const workloads = prefixes.map((idPrefix) => new Workload({ ...load, ...target, idPrefix }));
    const [one, two] = workloads as [Workload, Workload];
    expect(one.checksum).toBe(two.checksum);
    expect(one.checksum).toBe(new Workload({ ...load, ...target }).checksum);
    for (let n = 0; n < 100; n++) {
      const { body } = two.draw();
      for (const at of body.digitsAt) expect(body.bytes.toString('latin1', at - 24, at)).toBe(prefixes[1]);
    }
  });
});
