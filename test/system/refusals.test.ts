/** Why a request of a project was refused or stored nothing: counted for it, shown as it comes, and told to no client. */
import { spawn } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { addKey, changeKey, rotateKeys } from '../../src/projects/keys.ts';
import { keyId, type Project } from '../../src/projects/project.ts';
import { ProjectStore } from '../../src/projects/project-store.ts';
import { readOutcomes } from '../../src/projects/usage/outcome-day.ts';
import { errorEvent, eventId } from '../support/envelopes.ts';
import { DIST, System, until } from '../support/system.ts';
import { Tails } from '../support/tail.ts';

let system: System;
let store: ProjectStore;
const tails = new Tails();
beforeAll(async () => {
  system = await System.start({ processor: false });
  store = await ProjectStore.open(system.link);
});
afterAll(async () => {
  tails.end();
  await system?.stop();
});

/** @returns status and body */
async function ask(
  project: Project,
  key = project.key,
  headers: Record<string, string> = {},
): Promise<string> {
  const answer = await system.send({ ...project, key }, errorEvent(eventId()), headers);
  return `${answer.status} ${await answer.text()}`;
}
const UNAUTHORIZED = '401 {"error":"Invalid project or key"}';

it('is counted by project, outcome, reason and key, while clients are told what they always were', async () => {
  const plain = await system.createProject({ key: 'expired' });
  const { id } = plain;
  await store.set(id, (project) => rotateKeys(project, 'fresh', { now: Date.now(), overlapMs: 1 }));
  await store.set(id, (project) => addKey(project, { key: 'switched_off', enabled: true }, Date.now()));
  await store.set(id, (project) =>
    changeKey(project, keyId('switched_off'), {
      now: Date.now(),
      change: (key) => ({ ...key, enabled: false }),
    }),
  );
  const strict = await system.createProject({
    allowedOrigins: ['https://good.example'],
    filters: ['crawler'],
  });
  const off = await system.createProject({ enabled: false });
  await system.registryKnown();

  for (const key of ['expired', 'switched_off', 'unknown', 'unknown'])
    expect(await ask(plain, key)).toBe(UNAUTHORIZED);
  expect(await ask(off)).toBe(UNAUTHORIZED);
  expect(await ask({ ...plain, id: '4711' })).toBe(UNAUTHORIZED);
  expect(await ask(strict, strict.key, { origin: 'https://bad.example' })).toMatch(/^200 /);
  expect(
    await ask(strict, strict.key, {
      origin: 'https://good.example',
      'user-agent': 'Mozilla/5.0 (compatible; Googlebot/2.1)',
    }),
  ).toMatch(/^200 /);
  const { status } = await system.send(strict, '{}\n{"type":"event","length":-5}\n{}', {
    origin: 'https://good.example',
  });
  expect(status).toBe(400);

  const reasonsOf = async (project: Project): Promise<unknown[]> => {
    const hours = await readOutcomes(system.link, project.id, { now: Date.now(), hours: 2 });
    return hours.flatMap(({ reasons = [] }) => reasons.map((one) => Object.values(one).join(' '))).sort();
  };
  await until(async () => (await reasonsOf(plain)).length === 3);
  expect(await reasonsOf(plain)).toEqual([
    `forbidden_key disabled-key ${keyId('switched_off')} 1`,
    `forbidden_key expired-key ${keyId('expired')} 1`,
    `forbidden_key unknown-key ${keyId('unknown')} 2`,
  ]);
  await until(async () => (await reasonsOf(strict)).length === 3);
  expect(await reasonsOf(strict)).toEqual([
    'filtered crawler 1',
    'filtered origin 1',
    expect.stringContaining('invalid '),
  ]);
  await until(async () => (await reasonsOf(off)).length === 1);
  expect(await reasonsOf(off)).toEqual([`forbidden_key disabled-project ${keyId(off.key)} 1`]);
  const [hour] = await readOutcomes(system.link, id, { now: Date.now(), hours: 1 });
  expect(hour?.outcomes).toEqual({ forbidden_key: 4 });

  const count = (outcome: string, reason: string): Promise<number> =>
    system.metric('sluice_refusals_total', `{outcome="${outcome}",reason="${reason}"}`);
  expect(await count('forbidden_key', 'unknown-key')).toBe(2);
  expect(await count('filtered', 'origin')).toBe(1);

  const usage = spawn(process.execPath, [`${DIST}cli.js`, 'usage', id], {
    env: { ...process.env, ...system.env },
  });
  let text = '';
  for await (const part of usage.stdout) text += part;
  expect(text).toMatch(new RegExp(`forbidden_key +unknown-key +${keyId('unknown')} +2\n`));
});

it('holds however many keys somebody shows', async () => {
  const project = await system.createProject();
  await Promise.all(Array.from({ length: 300 }, (_, n) => ask(project, `guess_${n}`)));
  let counted = 0;
  let names = 0;
  await until(async () => {
    const hours = await readOutcomes(system.link, project.id, { now: Date.now(), hours: 2 });
    const reasons = hours.flatMap((hour) => hour.reasons ?? []);
    counted = reasons.reduce((sum, { requests }) => sum + requests, 0);
    names = reasons.length;
    return counted === 300;
  });
  expect(names).toBeLessThanOrEqual(2 * 101);
});

it('is shown by tail --refused as it comes, and by no other tail', async () => {
  const [mine, other] = [await system.createProject(), await system.createProject()];
  const [refusals, all, items] = await Promise.all([
    tails.start(system, '--refused', mine.id),
    tails.start(system, '--refused'),
    tails.start(system),
  ]);
  // Until all look on, what comes passes unseen.
  await until(async () => {
    await ask(other, 'not_its_key');
    await ask(mine, 'none_of_mine');
    expect(await ask(mine)).toMatch(/^200 /);
    return [refusals, all, items].every((out) => out() !== '') && all().includes(keyId('none_of_mine'));
  });
  const lines = (out: () => string): string[] => out().trimEnd().split('\n');
  for (const line of lines(refusals))
    expect(line).toMatch(
      new RegExp(`^\\S+  ${mine.id}  forbidden_key   key ${keyId('none_of_mine')}  .* unknown-key$`),
    );
  expect(all()).toContain(`key ${keyId('not_its_key')}`);
  for (const line of lines(items)) expect(line).toContain(`${mine.id}  event`);
});
