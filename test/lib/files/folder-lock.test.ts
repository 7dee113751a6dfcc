import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { lockFolder } from '../../../src/lib/files/folder-lock.ts';
import { temporaryFolder } from '../../support/servers.ts';

const dir = temporaryFolder('lock');
const file = join(dir, 'sink.lock');
const onLinux = process.platform === 'linux';
afterEach(() => rmSync(dir, { recursive: true, force: true }));

it('is held by one at a time, for each purpose, until it is released', async () => {
  const held = await lockFolder(dir, 'sink');
  expect(held).toBeDefined();
  expect(await lockFolder(dir, 'sink')).toBeUndefined();
  await (await lockFolder(dir, 'dev'))?.release();
  await held?.release();
  const next = await lockFolder(dir, 'sink');
  expect(next).toBeDefined();
  await next?.release();
  expect(readdirSync(dir)).toEqual([]);
});

it('is held by a process of another container until that dies', async () => {
  mkdirSync(dir, { recursive: true });
  // Its abstract socket is not seen here, as from another network.
  const program = `require('node:net').createServer().listen(process.argv[1], () => console.log('held'));`;
  const holder = spawn(process.execPath, ['-e', program, file]);
  await once(holder.stdout, 'data');
  if (onLinux) expect(await lockFolder(dir, 'sink')).toBeUndefined();
  holder.kill('SIGKILL');
  await once(holder, 'exit');
  expect(existsSync(file)).toBe(true);
  const next = await lockFolder(dir, 'sink');
  expect(next).toBeDefined();
  await next?.release();
});

it.runIf(onLinux)('is the later one’s of two that found no holder, and not both’s', async () => {
  // The other must come while the first one waits, which a busy machine may miss.
  for (let tries = 1, isOver = false; !isOver && tries <= 10; tries++) {
    const locking = lockFolder(dir, 'sink');
    await expect.poll(() => existsSync(file), { interval: 5 }).toBe(true);
    rmSync(file);
    const other = createServer().listen(file);
    await once(other, 'listening');
    const lock = await locking;
    isOver = lock === undefined;
    expect(isOver || tries < 10).toBe(true);
    await lock?.release();
    expect(existsSync(file)).toBe(true);
    await new Promise((resolve) => other.close(resolve));
  }
});
