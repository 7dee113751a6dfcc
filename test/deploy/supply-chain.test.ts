/** docs/supply-chain.md against what is installed. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
const PACKAGE = join(ROOT, 'node_modules', 'uWebSockets.js');
const document = readFileSync(join(ROOT, 'docs', 'supply-chain.md'), 'utf8');

describe('docs/supply-chain.md', () => {
  const rows = [...document.matchAll(/`(uws_linux_\w+\.node)` \| `([0-9a-f]{64})`/g)];

  it('has a row for each Node that is supported, on both processors', () => {
    expect(rows.map(([, file]) => file)).toEqual(
      [115, 127, 137].flatMap((abi) => ['x64', 'arm64'].map((cpu) => `uws_linux_${cpu}_${abi}.node`)),
    );
  });

  it.each(rows.map(([, file, hash]) => ({ file, hash })))('names the hash of $file', ({ file, hash }) => {
    const bytes = readFileSync(join(PACKAGE, `${file}`));
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(hash);
  });

  it('names the commit that the package names', () => {
    expect(document).toContain(readFileSync(join(PACKAGE, 'source_commit'), 'utf8').trim());
  });
});
