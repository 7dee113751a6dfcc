import { expect, it } from 'vitest';
import { TailLines } from '../../../src/management/api/watch.ts';
import type { Seen } from '../../../src/management/tail-item.ts';

let now = 0;
const clock = { now: () => 0, monotonic: () => now };
const item = (name: string, more: object = {}): Seen =>
  ({ type: 'event', event_id: name, received_at: '', payload_bytes: 1, ...more }) as Seen;
/** All that waits to be read. */
const read = (lines: TailLines): { event_id: string; missed?: number }[] =>
  String(lines.read() ?? '')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as { event_id: string; missed?: number });

it('parses nothing for a reader who is slow, and tells how much was missed', () => {
  const lines = new TailLines(clock);
  const payload = 'x'.repeat(400_000);
  let parsed = 0;
  for (let at = 0; at < 10; at++)
    lines.show(() => {
      parsed++;
      return [item(`big ${at}`, { payload })];
    });
  expect(parsed).toBe(3);
  expect(lines.readableLength).toBeLessThan(2 * 1024 * 1024);
  expect(read(lines).map(({ event_id }) => event_id)).toEqual(['big 0', 'big 1', 'big 2']);
  lines.show(() => [item('after')]);
  lines.show(() => [item('last')]);
  expect(read(lines)).toMatchObject([{ event_id: 'after', missed: 7 }, { event_id: 'last' }]);
  lines.destroy();
});

it('shows a thousand lines a second, and adds what the workers had not shown', () => {
  const lines = new TailLines(clock);
  const flood = (): void => {
    for (let at = 0; at < 1_500; at++) lines.show(() => [item(`${at}`)]);
  };
  flood();
  expect(read(lines)).toHaveLength(1_000);
  now += 1_000;
  lines.show(() => [item('next', { missed: 3 })]);
  expect(read(lines)).toMatchObject([{ event_id: 'next', missed: 503 }]);
  lines.destroy();
});
