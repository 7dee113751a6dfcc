/**
 * A worker that is silent for START_MS, and ready when the file GO is there; whoever makes the file TAKEN first is ready at once. Each adds a
 * line to the file BORN, with its process id.
 */
import { appendFileSync, existsSync, writeFileSync } from 'node:fs';

appendFileSync(process.env.BORN, `born ${process.pid}\n`);

let quick = false;
try {
  writeFileSync(process.env.TAKEN, `${process.pid}`, { flag: 'wx' });
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
process.on('message', ({ kind }) => {
  if (kind === 'stop') process.exit();
});
