/** The stores that the sinks are measured with: real ones on this machine, or those that the command line names. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../src/dev/servers.ts';
import { ROOT } from '../harness.ts';
import { cpuUs } from '../processes.ts';

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

const TOOLS = join(ROOT, '.test-tools');
const PASSWORD = 'bench';

/** ClickHouse's engine behind the HTTP front of the tests; its CPU includes that of the front. */
async function startClickHouse(): Promise<Store | undefined> {
  const modules = join(TOOLS, 'chdb');
  if (!existsSync(modules)) return undefined;
  const [dir, port] = [newFolder(), await freePort()];
  const args = [modules, dir, `${port}`, PASSWORD];
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

const elsewhere = (setting: string): Store => ({
  setting,
  cpuUs: () => undefined,
  bytes: () => undefined,
  stop: async () => undefined,
});

export const STORES: Readonly<Record<string, StartStore>> = {
  ndjson: startNdjson,
  clickhouse: startClickHouse,
};

/** A store by its name, or one that runs already by a value of SLUICE_SINK. */
export async function startStore(nameOrSetting: string): Promise<Store | undefined> {
  const start = STORES[nameOrSetting];
  if (start) return start();
  return nameOrSetting.includes(':') ? elsewhere(nameOrSetting) : undefined;
}
