/**
 * The build under test without frames: every entry is a message of its own, and as many are in flight as there are entries. A copy with
 * three bounds changed, so that both ways run the same code to the last line, and the product needs no setting for it.
 */
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageVersion, ROOT } from '../harness.ts';

const BOUNDS = {
  FRAME_ENTRIES_MAX: 1,
  FRAMES_IN_FLIGHT_EAGER: 20_000,
  FRAMES_IN_FLIGHT_MAX: 20_000,
} as const;
/** Below the checkout, where packages are found. */
const FOLDER = join(ROOT, '.bench/one-message');
let copies = 0;

/** @returns the copy's folder. @throws when a bound is nowhere: the copy would measure frames */
export function distWithoutFrames(dist: string): string {
  const folder = join(FOLDER, `${++copies}`);
  const copy = join(folder, 'dist');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  cpSync(dist, copy, { recursive: true });
  const about = { name: 'sluice', version: packageVersion(), type: 'module' };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(about));
  for (const [name, value] of Object.entries(BOUNDS)) setBound(copy, name, value);
  return copy;
}

/** Wherever the build has bundled it, and in its module. Builds up to 0.2.0 have that alone. */
function setBound(dist: string, name: string, value: number): void {
  const bound = new RegExp(`^((?:export )?const ${name} = )[^;]+;`, 'm');
  const paths = readdirSync(dist, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.js'))
    .map((path) => join(dist, path))
    .filter((path) => bound.test(readFileSync(path, 'utf8')));
  if (paths.length === 0) throw new Error(`${dist} has no bound ${name}`);
  for (const path of paths) writeFileSync(path, readFileSync(path, 'utf8').replace(bound, `$1${value};`));
}
