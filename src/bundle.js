/**
 * Bundles the two programs, with the packages that they use: a process reads few files then, and
 * needs half the time to start. `tsc` has compiled each module to dist before; dist/cli.js and
 * dist/ingest/worker.js are replaced, and dist/bundle has what they share or load later. The other
 * modules in dist are for tests and benches, which run parts of the program.
 */
import { chmodSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'rolldown';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));

/**
 * A module finds files by its own place, `import.meta.url`. Its code stands elsewhere now: it is told
 * where it was, seen from the file that has it.
 */
const OWN_PLACE = {
  name: 'own place',
  transform(code, id) {
    if (!id.startsWith(DIST)) return undefined;
    const place = JSON.stringify(`<dist>/${relative(DIST, id)}`);
    return code.replaceAll('import.meta.url', `new URL(${place}, import.meta.url).href`);
  },
  renderChunk: (code, { fileName }) =>
    code.replaceAll('"<dist>/', `"./${'../'.repeat(fileName.split('/').length - 1)}`),
};

await build({
  input: { cli: `${DIST}cli.js`, 'ingest/worker': `${DIST}ingest/worker.js` },
  platform: 'node',
  // It finds its binary beside itself.
  external: ['uWebSockets.js'],
  plugins: [OWN_PLACE],
  // Bounds keep their names: a bench changes some of them.
  optimization: { inlineConst: false },
  output: { dir: DIST, entryFileNames: '[name].js', chunkFileNames: 'bundle/[name].js' },
});
chmodSync(`${DIST}cli.js`, 0o755);
