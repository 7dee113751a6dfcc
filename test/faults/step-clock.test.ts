/** Only the wall clock steps, only that of the process, and while it runs. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { expect, it } from 'vitest';
import { redisServer } from '../support/servers.ts';
import { StepClock } from '../support/step-clock.ts';

const HOUR_MS = 3_600_000;
/** Says both clocks whenever it hears a line. */
const TELLER = `process.stdin.on('data', () => console.log(JSON.stringify([Date.now(), performance.timeOrigin + performance.now()])))`;

it('steps the wall clock of a running program forward and back, and no other clock', async () => {
  const clock = new StepClock();
  const child = spawn(process.execPath, ['-e', TELLER], {
    env: { ...process.env, ...clock.env },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ahead = async (): Promise<number[]> => {
    child.stdin.write('\n');
    const told = JSON.parse((await lines.next()).value as string) as number[];
    return told.map((time) => Math.round((time - Date.now()) / HOUR_MS) + 0);
  };
  expect(await ahead()).toEqual([0, 0]);
  clock.step(2 * HOUR_MS);
  expect(await ahead()).toEqual([2, 0]);
  clock.step(-5 * HOUR_MS);
  expect(await ahead()).toEqual([-3, 0]);
  child.stdin.end();
  await new Promise((resolve) => child.once('exit', resolve));
  clock.close();
});

it('starts a server that is told no environment', async () => {
  const clock = new StepClock();
  const redis = await redisServer(undefined, (bin) => clock.wrapped(bin));
  clock.step(HOUR_MS);
  const response = await new Promise<string>((resolve) => {
    const cli = spawn('redis-cli', ['-p', `${redis.port}`, 'TIME'], { stdio: ['ignore', 'pipe', 'inherit'] });
    let text = '';
    cli.stdout.on('data', (data: Buffer) => {
      text += data.toString();
    });
    cli.once('close', () => resolve(text));
  });
  expect(Math.round((Number(response.split('\n')[0]) * 1000 - Date.now()) / HOUR_MS)).toBe(1);
  await redis.close();
  clock.close();
});
