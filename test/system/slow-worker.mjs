/** Says that it is ready once the test's file GO is there; the worker that finds no file TAKEN makes it and is ready at once. */
import { existsSync, writeFileSync } from 'node:fs';

let quick = false;
try {
  writeFileSync(process.env.TAKEN, '', { flag: 'wx' });
  quick = true;
} catch {
  // The other one was faster.
}
const beat = () => {
  const ready = quick || existsSync(process.env.GO);
  process.send({
    kind: 'beat',
    readiness: { status: ready ? 'ready' : 'not ready', checks: {} },
    snapshot: [],
  });
};
setInterval(beat, 20);
process.on('disconnect', () => process.exit());
process.on('message', ({ kind }) => kind === 'stop' && process.exit());
