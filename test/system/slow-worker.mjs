/** A worker that is silent for START_MS, and ready when the file GO is there; whoever makes the file TAKEN first is ready at once. */
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
setTimeout(() => setInterval(beat, 20), Number(process.env.START_MS));
process.on('disconnect', () => process.exit());
process.on('message', ({ kind }) => kind === 'stop' && process.exit());
