import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { freePort } from '../src/commands/dev/servers.ts';
import { startFresh } from './fresh.ts';
import { OWN_DIST } from './harness.ts';
import type { RunDocument } from './load/document.ts';

const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;

/**
 * Runs `sluice load` against a bare server. Both are processes of their own, as a user has them.
 * @param args further arguments of the command
 * @param cap most requests a second that the server takes; undefined: all
 * @throws when the command prints no result
 */
export async function loadOfBare(args: readonly string[], cap?: number): Promise<RunDocument> {
  const server = startFresh('uws', { port: await freePort(), cap });
  try {
    const { port } = await server.result;
    const to = ['--dsn', `http://key@127.0.0.1:${port}/1`, '--mix', 'event=1', '--json', '-'];
    const { stdout, stderr } = spawnSync(
      process.execPath,
      [join(OWN_DIST, 'cli.js'), 'load', ...to, ...args],
      {
        encoding: 'utf8',
        maxBuffer: OUTPUT_BYTES_MAX,
      },
    );
    if (stdout === '') throw new Error(stderr);
    return JSON.parse(stdout) as RunDocument;
  } finally {
    await server.end();
  }
}
