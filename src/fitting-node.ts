/**
 * Prints a text that `npm start` and `npm test` put before PATH. If this Node cannot run sluice,
 * the text is the folder of a Node that npm fetches, else it is empty. This program runs before the
 * bundler, which needs a newer Node than this program does.
 */
import { spawnSync } from 'node:child_process';
import { setting } from './config.ts';
import { fittingNode, misfit } from './ingest/native.ts';

/**
 * Whether `npm ci` has left out optional packages, because they need a newer Node than this
 * version.
 */
function isIncomplete(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major === 20) return minor < 19;
  return major < 22 || (major === 22 && minor < 12);
}

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

const { node } = process.versions;
const found = misfit();
if (isIncomplete(node)) {
  const both = `npm ci && npm ${setting('npm_lifecycle_event') ?? 'start'}`;
  say(
    `Node v${node} is too old to build sluice. Run both commands by another: npx -y -p ${fittingNode()} -c '${both}'`,
  );
  process.exitCode = 1;
} else if (found?.fitting) {
  say(`${found.why}: npm fetches ${found.fitting} for this command.`);
  const args = ['-y', '--loglevel=error', '-p', found.fitting, '-c', 'dirname "$(command -v node)"'];
  const { status, stdout } = spawnSync('npx', args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  if (status === 0) process.stdout.write(`${stdout.trim()}:`);
  else process.exitCode = 1;
}
