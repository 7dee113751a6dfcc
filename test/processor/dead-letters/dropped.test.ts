import { afterEach, expect, it } from 'vitest';
import { systemClock as clock } from '../../../src/lib/clock.ts';
import { DroppedDeadLetters, readDropped } from '../../../src/processor/dead-letters/dropped.ts';
import { eventually, Harness, log } from '../harness.ts';

let harness: Harness;
afterEach(() => harness?.close());

it('the number of dropped letters is written when the broker takes records again', async () => {
  harness = await Harness.start();
  const { link, manager } = harness;
  const stream = 'KV_sluice_counters';
  const { config } = await manager.streams.info(stream);
  await manager.streams.delete(stream);
  const failures: string[] = [];
  const watched = {
    ...log,
    debug: (_: object, text: string) => failures.push(text),
  } as unknown as typeof log;
  const dropped = new DroppedDeadLetters({ link, log: watched, clock });
  dropped.note(3, '42');
  await eventually(() => failures.length > 0);
  await manager.streams.add(config);
  expect(await eventually(() => readDropped(link, clock.now()))).toMatchObject({ letters: 3, project: '42' });
  await dropped.close();
});
