/** ClickHouse for tests: its engine behind a small HTTP server (chdb-server.mjs), in a process and a folder of its own. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { lastingPort, temporaryFolder } from '../servers.ts';
import { chdbFolder } from './tools.ts';

const SERVER = new URL('./chdb-server.mjs', import.meta.url);
const PASSWORD = 'secret';

export type Fault = 'read-only' | 'full' | 'quoting' | 'garbled' | 'cut' | 'slow';

/** `on`: a disk for its data. `timeZone`: in place of the machine's. */
type Options = { on?: string; timeZone?: string };

export class TestClickHouse {
  readonly #dir = temporaryFolder('clickhouse');
  readonly #data: string;
  readonly #timeZone: string | undefined;
  readonly port: number;
  #child: ChildProcess | undefined;

  private constructor(port: number, { on, timeZone }: Options) {
    this.port = port;
    this.#data = join(on ?? this.#dir, 'data');
    this.#timeZone = timeZone;
  }

  static async start(options: Options = {}): Promise<TestClickHouse> {
    const server = new TestClickHouse(await lastingPort(), options);
    await server.restart();
    return server;
  }

  /** A value of SLUICE_SINK. */
  url({ password = PASSWORD, database = 'sluice', options = '', port = this.port } = {}): string {
    return `clickhouse://default:${password}@127.0.0.1:${port}/${database}${options}`;
  }

  /** After kill(): the same server again. */
  async restart(): Promise<void> {
    const args = [chdbFolder(), this.#dir, this.#data, `${this.port}`, PASSWORD];
    this.#child = fork(SERVER, args, {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      serialization: 'json',
      ...(this.#timeZone && { env: { ...process.env, TZ: this.#timeZone } }),
    });
    await Promise.race([
      once(this.#child, 'message'),
      once(this.#child, 'exit').then(() => Promise.reject(new Error('chdb did not start'))),
    ]);
  }

  /** Rows of one statement. @param path `/aside` for one that runs beside all others */
  async query<Row = Record<string, unknown>>(statement: string, path = '/'): Promise<Row[]> {
    const text = await this.run(`${statement} FORMAT JSONEachRow`, path);
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Row);
  }

  /** @throws what the server says */
  async run(statement: string, path = '/'): Promise<string> {
    const headers = { 'x-clickhouse-user': 'default', 'x-clickhouse-key': PASSWORD };
    const answer = await fetch(`http://127.0.0.1:${this.port}${path}`, {
      method: 'POST',
      body: statement,
      headers,
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    return text;
  }

  /** What becomes of inserts from now on; none: they are stored again. */
  async fault(fault?: Fault): Promise<void> {
    const child = this.#child as ChildProcess;
    const heard = once(child, 'message');
    child.send({ fault });
    await heard;
  }

  /** As a crash does it. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
