/**
 * Prints what `npm start` and `npm test` put before PATH: the folder of a Node that npm fetches, if
 * this Node cannot run sluice, and nothing otherwise. It runs before the bundler, which asks for a
 * newer Node than this program does.
 */
import { spawnSync } from 'node:child_process';
import { misfit } from './ingest/native.ts';

const found = misfit();
if (found?.fitting) {
  process.stderr.write(`${found.why}: npm fetches ${found.fitting} for this command.\n`);
  const args = ['-y', '--loglevel=error', '-p', found.fitting, '-c', 'dirname "$(command -v node)"'];
  const { status, stdout } = spawnSync('npx', args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status === 0) process.stdout.write(`${stdout.trim()}:`);
  else process.exitCode = 1;
}
