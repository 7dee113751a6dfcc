/** A changed limit holds on every worker within a second (contract part 2, Rate limit). */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { type Project, System } from '../support/system.ts';

let system: System;
let project: Project;
beforeAll(async () => {
  system = await System.start({ workers: 3, processor: false });
  project = await system.createProject({ rateLimit: 50 });
});
afterAll(() => system.stop());

/** Statuses of `count` requests, each over a connection of its own, so that every worker gets some. */
const ask = (count: number): Promise<number[]> =>
  Promise.all(
    Array.from({ length: count }, async () => {
      const response = await system.send(project, errorEvent(eventId()), { connection: 'close' });
      await response.arrayBuffer();
      return response.status;
    }),
  );
const admitted = (statuses: number[]): number => statuses.filter((status) => status === 200).length;

async function setLimit(rateLimit: number): Promise<void> {
  await system.changeProject(project, (record) => ({ ...record, rateLimit }));
  await system.registryKnown();
}

it('a lowered limit refuses at once what is over it, a raised one admits exactly what it adds, also after a refusal', async () => {
  expect(admitted(await ask(20))).toBe(20);
  await setLimit(10);
  expect(admitted(await ask(20))).toBe(0);
  await setLimit(45);
  expect(admitted(await ask(60))).toBe(25);
  await setLimit(46);
  expect(admitted(await ask(20))).toBe(1);
});
