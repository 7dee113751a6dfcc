/**
 * Bundles the two programs with the packages that they use. So a process reads few files, and
 * starts in half the time. Before this, `tsc` has compiled each module to dist. The bundles replace
 * dist/cli.js and dist/ingest/worker.js; dist/bundle has what both share or load later. The other
 * modules in dist are for tests and benches, which run parts of the program.
 */
import { chmodSync } from 'node:fs';
import { relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'rolldown';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));

/**
 * A module finds files beside itself by `import.meta.url`. In a bundle its code stands in another
 * file. So this plugin replaces `import.meta.url` with the URL that the module had in dist.
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
  // uWebSockets.js loads a binary from its own folder, so it is not bundled.
  external: ['uWebSockets.js'],
  plugins: [OWN_PLACE],
  // Constants stay variables in the output, because a bench changes some bounds there.
  optimization: { inlineConst: false },
  output: { dir: DIST, entryFileNames: '[name].js', chunkFileNames: 'bundle/[name].js' },
});
chmodSync(`${DIST}cli.js`, 0o755);
