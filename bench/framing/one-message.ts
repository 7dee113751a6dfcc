/**
 * The build under test without frames: every entry is a message of its own, and as many are in flight as there are entries. A copy with
 * three bounds changed, so that both ways run the same code to the last line, and the product needs no setting for it.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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

/** @returns the copy's folder. @throws when a bound is not where it was: the copy would measure frames */
export function distWithoutFrames(dist: string): string {
  const folder = join(FOLDER, `${++copies}`);
  const copy = join(folder, 'dist');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  cpSync(dist, copy, { recursive: true });
  const about = { name: 'sluice', version: packageVersion(), type: 'module' };
  writeFileSync(join(folder, 'package.json'), JSON.stringify(about));
  const path = join(copy, 'limits.js');
  let text = readFileSync(path, 'utf8');
  for (const [name, value] of Object.entries(BOUNDS)) {
    const changed = text.replace(new RegExp(`(export const ${name} = )[\\d_]+;`), `$1${value};`);
    if (changed === text) throw new Error(`${path} has no bound ${name}`);
    text = changed;
  }
  writeFileSync(path, text);
  return copy;
}
