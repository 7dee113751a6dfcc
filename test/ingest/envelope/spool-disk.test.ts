import { closeSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SpoolDisk } from '../../../src/ingest/envelope/spool-disk.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { ANSWER_MS_MAX } from '../../../src/limits.ts';
import { temporaryFolder } from '../../support/servers.ts';

it('is late, and then hangs, as long as its oldest call does not return', () => {
  let now = 0;
  const disk = new SpoolDisk('/tmp', { monotonic: () => now });
  const returns: (() => void)[] = [];
  const state = (): unknown => [disk.isLate, disk.hangs];
  disk.run((returned) => returns.push(returned));
  now = ANSWER_MS_MAX / 2;
  disk.run((returned) => returns.push(returned));
  expect(state()).toEqual([false, false]);
  now++;
  expect(state()).toEqual([true, false]);
  now = ANSWER_MS_MAX + 1;
  expect(state()).toEqual([true, true]);
  returns[0]?.();
  expect(state()).toEqual([true, false]);
  returns[1]?.();
  expect(state()).toEqual([false, false]);
});

it('gives files while another worker removes the names that were left in the folder', async () => {
  const folder = temporaryFolder('spool-disk');
  writeFileSync(join(folder, 'sluice-spool-1-0123456789abcdef'), '');
  writeFileSync(join(folder, 'sluice-spool-of-a-user.tar'), '');
  const [disk, other] = [new SpoolDisk(folder, systemClock), new SpoolDisk(folder, systemClock)];
  const opened = Array.from({ length: 200 }, () => {
    void other.removeLeftNames();
    return new Promise<number>((resolve, reject) =>
      disk.run((returned) =>
        disk.open((error, fd) => {
          returned();
          error ? reject(error) : resolve(fd);
        }),
      ),
    );
  });
  for (const fd of await Promise.all(opened)) closeSync(fd);
  await expect.poll(() => readdirSync(folder)).toEqual(['sluice-spool-of-a-user.tar']);
  rmSync(folder, { recursive: true });
});
