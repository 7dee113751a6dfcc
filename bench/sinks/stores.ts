/** The stores that the sinks are measured with: real ones on this machine, or those that the command line names. */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { AwsClient } from 'aws4fetch';
import { freePort } from '../../src/commands/dev/servers.ts';
import { findPostgres, TestPostgres } from '../../test/support/postgres.ts';
import { ROOT } from '../harness.ts';
import { cpuUs, treeCpuUs } from '../processes.ts';

export type Store = {
  /** The value of SLUICE_SINK. */
  setting: string;
  /** CPU that the store used so far, microseconds; undefined when it is elsewhere. */
  cpuUs(): number | undefined;
  /** What it takes on the disk; undefined when it is elsewhere. */
  bytes(): number | undefined;
  stop(): Promise<void>;
};

/** Undefined when it cannot be had here: `npm run test:sinks` installs it. */
type StartStore = () => Promise<Store | undefined>;

function sizeOf(folder: string): number {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  return files
    .filter((file) => file.isFile())
    .reduce((sum, { parentPath, name }) => sum + sizeOfFile(join(parentPath, name)), 0);
}

/** Merges remove files while we look. */
const sizeOfFile = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0;

const newFolder = (): string => mkdtempSync(join(tmpdir(), 'sluice-bench-sink-'));
const remove = (dir: string): void => rmSync(dir, { recursive: true, force: true });

async function startNdjson(): Promise<Store> {
  const dir = newFolder();
  return {
    setting: `ndjson:${dir}`,
    cpuUs: () => undefined,
    bytes: () => sizeOf(dir),
    stop: async () => remove(dir),
  };
}

async function killed(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit');
  child.kill('SIGKILL');
  await exit;
}

/** A minute would be the whole run. */
const BENCH_OBJECT_SEC = 5;
const TOOLS = join(ROOT, '.test-tools');
const PASSWORD = 'bench';

/** ClickHouse's engine behind the HTTP front of the tests; its CPU includes that of the front. */
async function startClickHouse(): Promise<Store | undefined> {
  const modules = join(TOOLS, 'chdb');
  if (!existsSync(modules)) return undefined;
  const [dir, port] = [newFolder(), await freePort()];
  const args = [modules, dir, join(dir, 'data'), `${port}`, PASSWORD];
  const front = join(ROOT, 'test/support/sinks/chdb-server.mjs');
  const child = fork(front, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  await once(child, 'message');
  return {
    setting: `clickhouse://default:${PASSWORD}@127.0.0.1:${port}/sluice`,
    cpuUs: () => cpuUs(child.pid ?? 0),
    bytes: () => sizeOf(dir),
    stop: async () => {
      await killed(child);
      remove(dir);
    },
  };
}

/** SeaweedFS with a bucket; the answer to a request that is not signed says that it is up. */
async function startS3(): Promise<Store | undefined> {
  const weed = join(TOOLS, 'seaweedfs/bin/weed');
  if (!existsSync(weed)) return undefined;
  const dir = newFolder();
  const names = ['master', 'volume', 'filer', 's3'].flatMap((name) => [`${name}.port`, `${name}.port.grpc`]);
  const ports = await Promise.all(names.map(async (name) => `-${name}=${await freePort()}`));
  const port = ports[6]?.split('=')[1];
  const args = [
    'server',
    `-dir=${dir}`,
    '-ip=127.0.0.1',
    '-master.telemetry=false',
    '-filer',
    '-s3',
    ...ports,
  ];
  const child = spawn(weed, [...args, '-master.volumeSizeLimitMB=64', '-volume.max=20'], { stdio: 'ignore' });
  const endpoint = `http://127.0.0.1:${port}`;
  const client = new AwsClient({ accessKeyId: 'any', secretAccessKey: 'any', service: 's3', retries: 0 });
  for (let isUp = false; !isUp; await pause(100))
    isUp = await client.fetch(`${endpoint}/bench`, { method: 'PUT' }).then(
      ({ ok }) => ok,
      () => false,
    );
  return {
    setting: `s3://any:any@bench/sluice?endpoint=${endpoint}&seconds=${BENCH_OBJECT_SEC}`,
    cpuUs: () => cpuUs(child.pid ?? 0),
    bytes: () => sizeOf(dir),
    stop: async () => {
      await killed(child);
      remove(dir);
    },
  };
}

/** With fsync, unlike in the tests. */
async function startPostgres(): Promise<Store | undefined> {
  if (!findPostgres()) return undefined;
  const dir = newFolder();
  // The server does not run as root.
  chmodSync(dir, 0o755);
  const server = await TestPostgres.start({ settings: { fsync: 'on' }, on: dir });
  return {
    setting: server.url,
    cpuUs: () => treeCpuUs(server.pid),
    bytes: () => sizeOf(dir),
    stop: async () => {
      await server.close();
      remove(dir);
    },
  };
}

const elsewhere = (setting: string): Store => ({
  setting,
  cpuUs: () => undefined,
  bytes: () => undefined,
  stop: async () => undefined,
});

export const STORES: Readonly<Record<string, StartStore>> = {
  ndjson: startNdjson,
  postgres: startPostgres,
  clickhouse: startClickHouse,
  s3: startS3,
};

/** A store by its name, or one that runs already by a value of SLUICE_SINK. */
export async function startStore(nameOrSetting: string): Promise<Store | undefined> {
  const start = STORES[nameOrSetting];
  if (start) return start();
  return nameOrSetting.includes(':') ? elsewhere(nameOrSetting) : undefined;
}
