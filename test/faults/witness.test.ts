import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createLog } from '../../src/lib/log.ts';
import { NdjsonSink } from '../../src/sink/ndjson/ndjson.ts';
import { temporaryFolder } from '../support/servers.ts';
import { journalOf } from './witness.ts';

it('says which batch of the sink has a frame, and whether its lines are there', async () => {
  const dir = temporaryFolder('witness');
  const sink = await NdjsonSink.lock(dir, { log: createLog('silent') });
  const batch = await (await sink.open('S')).begin(['f']);
  batch.beginEntry({ frameId: 'f', index: 0 });
  const envelope = { projectId: '1', eventId: 'e1', receivedAt: Date.now() };
  batch.add({
    type: 'log',
    head: '{"event_id":"e1","payload":',
    fields: { envelope, index: 0, header: '{}' },
    json: Buffer.from('1'),
  });
  await batch.commit({ now: true, held: () => undefined });
  await sink.close();
  const stream = join(dir, 'S');
  const said = (eventId: string, frameId = 'f'): string => journalOf(stream, { frameId, eventId });
  expect(said('e1')).toMatch(/^1 entries by 1\.idx \(\S+\.ndjson: 1 lines, with it, \S+Z\)$/);
  expect(said('e2')).toContain('1 lines, without it');
  expect(said('e1', 'g')).toBe('nothing');
  const [, data = ''] = /\((\S+):/.exec(said('e1')) ?? [];
  rmSync(join(stream, data));
  expect(said('e1')).toContain('no file, without it');
  rmSync(dir, { recursive: true });
});
