/**
 * A real PostgreSQL for tests: a cluster of its own in a temporary folder, on a free loopback port, gone afterwards.
 *
 * The server does not run as root, so there it is started as the user that the package made. A keeper (a shell) stands between it and
 * us: when our end of pipe 3 closes, also because this process was killed, the keeper ends the server and removes the folder.
 */
import { type ChildProcess, execFileSync, type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { lastingPort, temporaryFolder } from './servers.ts';

const DEBIAN_FOLDER = '/usr/lib/postgresql';
/** Homebrew leaves versioned formulae out of the PATH. */
const BREW_FOLDERS = ['/opt/homebrew/opt/postgresql@18/bin', '/usr/local/opt/postgresql@18/bin'];
const USER = 'postgres';
const START_MS_MAX = 20_000;

/** The folder of initdb and postgres: that of POSTGRES_BIN, else Debian's newest, else one on the PATH or of Homebrew. */
export function findPostgres(): string | undefined {
  if (process.env.POSTGRES_BIN) return process.env.POSTGRES_BIN;
  const versions = existsSync(DEBIAN_FOLDER) ? readdirSync(DEBIAN_FOLDER).map(Number) : [];
  const newest = Math.max(
    ...versions.filter((version) => existsSync(`${DEBIAN_FOLDER}/${version}/bin/initdb`)),
  );
  if (Number.isFinite(newest)) return `${DEBIAN_FOLDER}/${newest}/bin`;
  const folders = [...(process.env.PATH ?? '').split(':'), ...BREW_FOLDERS];
  return folders.find((folder) => folder && existsSync(join(folder, 'initdb')));
}

type Owner = { uid?: number; gid?: number };

function owner(): Owner {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string): number => Number(execFileSync('id', [flag, USER], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** `keep` on the pipe ends the server alone, anything else (its end) the folder too. Runs until then even when the server dies. */
const KEEPER = `dir=$1; shift
cd "$dir"
"$@" 3<&- & server=$!
read -r word <&3
kill -INT $server 2>/dev/null; wait $server
[ "$word" = keep ] || rm -rf "$dir"`;

export class TestPostgres {
  readonly #bin: string;
  readonly #owner: Owner;
  readonly #dir: string;
  readonly port: number;
  readonly #settings: Record<string, string>;
  #keeper: ChildProcess | undefined;
  #said = '';

  private constructor(
    bin: string,
    dir: string,
    { port, owner, settings }: { port: number; owner: Owner; settings: Record<string, string> },
  ) {
    this.#bin = bin;
    this.#dir = dir;
    this.#owner = owner;
    this.port = port;
    this.#settings = settings;
  }

  /** @param encoding of the database; `settings` of the server, beside those of every test; `on` a disk, where the folder is else a temporary one */
  static async start({
    encoding = 'UTF8',
    settings = {} as Record<string, string>,
    on = undefined as string | undefined,
  } = {}): Promise<TestPostgres> {
    const bin = findPostgres();
    if (!bin) throw new Error('postgresql is not installed');
    const as = owner();
    const dir = on === undefined ? temporaryFolder('postgres') : join(on, 'postgres');
    if (on !== undefined) mkdirSync(dir);
    if (as.uid !== undefined && as.gid !== undefined) chownSync(dir, as.uid, as.gid);
    const args = [
      '-D',
      join(dir, 'data'),
      '-U',
      USER,
      '-A',
      'trust',
      '-E',
      encoding,
      '--locale=C',
      '--no-sync',
    ];
    const made = spawnSync(join(bin, 'initdb'), args, { ...as, cwd: dir, encoding: 'utf8' });
    if (made.status !== 0) {
      rmSync(dir, { recursive: true, force: true });
      throw new Error(`initdb: ${made.stderr}`);
    }
    const server = new TestPostgres(bin, dir, { port: await lastingPort(), owner: as, settings });
    await server.restart();
    return server;
  }

  get url(): string {
    return `postgres://${USER}@127.0.0.1:${this.port}/postgres`;
  }

  /** Of the keeper, under which all processes of the server are. 0 while it is stopped. */
  get pid(): number {
    return this.#keeper?.pid ?? 0;
  }

  /** After stop() or kill(): the same server again. */
  async restart(): Promise<void> {
    const { port } = this;
    const local = { port, listen_addresses: '127.0.0.1', unix_socket_directories: '', fsync: 'off' };
    const settings = { ...local, ...this.#settings };
    const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const command = [join(this.#bin, 'postgres'), '-D', join(this.#dir, 'data'), ...args];
    const options: SpawnOptions = {
      ...this.#owner,
      stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
      detached: true, // whoever ends us with our group does not end the keeper
    };
    const keeper = spawn('/bin/sh', ['-c', KEEPER, 'sh', this.#dir, ...command], options);
    this.#keeper = keeper;
    for (const stream of [keeper.stdout, keeper.stderr])
      stream?.on('data', (data: Buffer) => {
        this.#said = (this.#said + data.toString()).slice(-2_000);
      });
    await this.#answers();
  }

  async #answers(): Promise<void> {
    for (const until = performance.now() + START_MS_MAX; performance.now() < until; await pause(50))
      if (await this.query('SELECT 1').then(Boolean, () => false)) return;
    await this.close();
    throw new Error(`postgres did not start: ${this.#said}`);
  }

  /** Rows of one statement on a connection of its own. */
  async query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    text: string,
    values?: unknown[],
  ): Promise<Row[]> {
    const client = await this.client();
    try {
      return (await client.query<Row>(text, values)).rows;
    } finally {
      await client.end();
    }
  }

  /** A connection, to be ended by the caller. */
  async client(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: this.url });
    client.on('error', () => undefined);
    await client.connect();
    return client;
  }

  /** A fast shutdown: connections are cut. */
  stop(): Promise<void> {
    return this.#end('keep');
  }

  /** As a crash does it. Its next start recovers. */
  async kill(): Promise<void> {
    const [pid] = readFileSync(join(this.#dir, 'data', 'postmaster.pid'), 'utf8').split('\n');
    process.kill(Number(pid), 'SIGKILL');
    await this.#end('keep');
  }

  close(): Promise<void> {
    return this.#end('');
  }

  async #end(word: string): Promise<void> {
    const keeper = this.#keeper;
    this.#keeper = undefined;
    if (!keeper) return word === 'keep' ? undefined : rmSync(this.#dir, { recursive: true, force: true });
    const ended = new Promise((resolve) => keeper.once('exit', resolve));
    const pipe = keeper.stdio[3] as NodeJS.WritableStream & { destroy(): void };
    pipe.on('error', () => undefined);
    pipe.end(`${word}\n`);
    await ended;
  }
}
