/** A real S3 server for tests: SeaweedFS in a folder of its own, on free loopback ports, gone afterwards. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { AwsClient } from 'aws4fetch';
import { lastingPort, temporaryFolder } from '../servers.ts';
import { weedProgram } from './tools.ts';

const START_MS_MAX = 60_000;
/** Kills the server when our end of pipe 3 closes, also because this process was killed. */
const KEEPER = '"$@" 3<&- & server=$!; read -r _ <&3; kill -9 $server; wait $server 2>/dev/null';
const KEYS = { accessKeyId: 'test', secretAccessKey: 'secret' };
const READER = { accessKeyId: 'reader', secretAccessKey: 'secret' };
const identity = (
  name: string,
  { accessKeyId, secretAccessKey }: typeof KEYS,
  actions: readonly string[],
): object => ({ name, credentials: [{ accessKey: accessKeyId, secretKey: secretAccessKey }], actions });

export class TestS3 {
  readonly #dir = temporaryFolder('s3');
  readonly #data: string;
  readonly #client = new AwsClient({ ...KEYS, service: 's3', region: 'us-east-1', retries: 0 });
  readonly #ports: Readonly<Record<string, number>>;
  #child: ChildProcess | undefined;

  private constructor(ports: Readonly<Record<string, number>>, on?: string) {
    this.#ports = ports;
    this.#data = on ?? this.#dir;
    const identities = [
      identity('writer', KEYS, ['Admin', 'Read', 'List', 'Tagging', 'Write']),
      identity('reader', READER, ['Read', 'List']),
    ];
    writeFileSync(join(this.#dir, 's3.json'), JSON.stringify({ identities }));
  }

  /** With a bucket `archive`. @param on a disk for its data */
  static async start(on?: string): Promise<TestS3> {
    const names = ['master', 'volume', 'filer', 's3'].flatMap((name) => [name, `${name}.grpc`]);
    const chosen = new Set<number>();
    while (chosen.size < names.length) chosen.add(await lastingPort());
    const ports = [...chosen];
    const server = new TestS3(Object.fromEntries(names.map((name, at) => [name, ports[at] ?? 0])), on);
    await server.restart();
    return server;
  }

  get port(): number {
    return this.#ports.s3 ?? 0;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** A value of SLUICE_SINK. Objects are stored after a second. */
  url({ bucket = 'archive', keys = 'test:secret', options = '', port = this.port } = {}): string {
    const more = options === '' ? '' : `&${options}`;
    return `s3://${keys}@${bucket}/sluice?endpoint=http://127.0.0.1:${port}&seconds=1${more}`;
  }

  readonly readerKeys = `${READER.accessKeyId}:${READER.secretAccessKey}`;

  /** After kill(): the same server again. */
  async restart(): Promise<void> {
    const ports = Object.entries(this.#ports).map(
      ([name, port]) => `-${name.replace(/^(\w+)/, '$1.port')}=${port}`,
    );
    const args = [
      '-logtostderr=true',
      'server',
      `-dir=${this.#data}`,
      '-ip=127.0.0.1',
      '-master.telemetry=false',
    ];
    args.push(
      '-master.volumeSizeLimitMB=64',
      '-volume.max=20',
      '-filer',
      '-s3',
      `-s3.config=${this.#dir}/s3.json`,
    );
    // Parts that we do not use would want the same ports in two servers at once.
    args.push('-s3.iam=false', '-s3.port.iceberg=0', '-s3.port.lance=0');
    const child = spawn('/bin/sh', ['-c', KEEPER, 'sh', weedProgram(), ...args, ...ports], {
      stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    let said = '';
    child.stderr?.on('data', (data: Buffer) => {
      said = (said + data.toString()).slice(-2_000);
    });
    const isUp = async (): Promise<boolean> => (await this.#ask('PUT', '/archive')) !== undefined;
    for (const until = performance.now() + START_MS_MAX; !(await isUp()); await pause(100))
      if (performance.now() > until) throw new Error(`weed did not start: ${said}`);
  }

  /** Undefined while the server does not answer, or fails. */
  async #ask(method: string, path: string): Promise<Buffer | undefined> {
    try {
      const answer = await this.#client.fetch(`${this.endpoint}${path}`, { method });
      const isThere = method === 'PUT' && answer.status === 409;
      return answer.ok || isThere ? Buffer.from(await answer.arrayBuffer()) : undefined;
    } catch {
      return undefined;
    }
  }

  /** Keys and sizes below the prefix, in order. */
  async list(prefix = 'sluice/'): Promise<{ key: string; bytes: number }[]> {
    const found: { key: string; bytes: number }[] = [];
    for (let after = ''; ; ) {
      const query = new URLSearchParams({ 'list-type': '2', prefix, 'start-after': after });
      const answer = await this.#ask('GET', `/archive?${query}`);
      if (!answer) throw new Error(`${prefix} cannot be listed`);
      const xml = `${answer}`;
      for (const [, key = '', bytes] of xml.matchAll(/<Key>([^<]*)<\/Key>.*?<Size>(\d+)<\/Size>/gs))
        found.push({ key, bytes: Number(bytes) });
      if (!xml.includes('<IsTruncated>true<')) return found;
      after = found.at(-1)?.key ?? '';
    }
  }

  async get(key: string): Promise<Buffer> {
    const content = await this.#ask('GET', `/archive/${key}`);
    if (!content) throw new Error(`no object ${key}`);
    return content;
  }

  async put(key: string, body: Buffer): Promise<void> {
    const answer = await this.#client.fetch(`${this.endpoint}/archive/${key}`, {
      method: 'PUT',
      body: new Uint8Array(body),
    });
    if (!answer.ok) throw new Error(`${key}: ${answer.status}`);
  }

  async remove(key: string): Promise<void> {
    if (!(await this.#ask('DELETE', `/archive/${key}`))) throw new Error(`${key} cannot be removed`);
  }

  /** As a crash does it. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    const exit = once(child, 'exit');
    const pipe = child.stdio[3] as NodeJS.WritableStream;
    pipe.on('error', () => undefined);
    pipe.end();
    await exit;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
