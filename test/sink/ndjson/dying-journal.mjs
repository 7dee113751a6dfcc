/** Stores frames 1 and 2 in a journal of the build, once each; ends itself at the given step of its file operations, or when the given files are there. */
import { existsSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';

const [, , dir, dieAt, ...files] = process.argv;
const fs = createRequire(import.meta.url)('node:fs/promises');
let steps = 0;
function step() {
  const areThere = files.length > 0 && files.every((name) => existsSync(join(dir, name)));
  if (++steps === Number(dieAt) || areThere) process.kill(process.pid, 'SIGKILL');
}
/** A step before the operation and one after it. */
function around(owner, name) {
  const work = owner[name];
  owner[name] = async (...args) => {
    step();
    const result = await work.apply(owner, args);
    step();
    return result;
  };
}
const open = fs.open;
fs.open = async (...args) => {
  step();
  const handle = await open(...args);
  for (const name of ['writeFile', 'sync', 'close']) around(handle, name);
  return handle;
};
for (const name of ['rename', 'mkdir', 'rm']) around(fs, name);
syncBuiltinESMExports();

const { createLog } = await import('../../../dist/lib/log.js');
const { systemClock } = await import('../../../dist/lib/clock.js');
const { StreamJournal } = await import('../../../dist/sink/ndjson/stream-journal.js');

const journal = await StreamJournal.open(dir, { clock: systemClock, log: createLog('silent') });
for (const n of [1, 2]) {
  const batch = journal.begin();
  const frameId = `frame ${n}`;
  if (batch.entriesKnown(frameId) === 0) {
    const envelope = { projectId: '1', eventId: 'e', receivedAt: Date.now() };
    const fields = { envelope, index: 0, header: '{}' };
    batch.add({ type: 'log', head: `{"n":${n},"payload":`, fields, json: Buffer.from('{}') });
    batch.beginEntry({ frameId, index: 0, usage: { projectId: '1', month: '2026-05', position: n } });
  }
  await batch.commit();
}
