import { expect, it } from 'vitest';
import { mergeProjects, ProjectBoard, type ProjectFigures } from '../../src/http/project-board.ts';
import { PROJECTS_SHOWN_MAX, PROJECTS_WATCHED_MAX } from '../../src/limits.ts';

const none = (): undefined => undefined;
const figures = (id: string, requests: number): ProjectFigures => ({
  id,
  requests,
  accepted: 0,
  filtered: 0,
  limited: 0,
});

it('counts each outcome where it belongs and keeps the newest position', () => {
  const board = new ProjectBoard();
  const project = { id: '1' };
  board.note(project, 'accepted', { month: '2026-07', position: 7 });
  board.note(project, 'accepted', { month: '2026-07', position: 6 });
  // The others come after its record has changed.
  for (const outcome of ['filtered', 'rate_limited', 'quota_exceeded', 'invalid'] as const)
    board.note({ id: '1' }, outcome);
  expect(board.busiest(() => 10)).toEqual([
    {
      id: '1',
      requests: 6,
      accepted: 2,
      filtered: 1,
      limited: 2,
      usage: { month: '2026-07', position: 7 },
      quota: 10,
    },
  ]);
});

it('takes the first position of a new month for newer than the last of the old one', () => {
  const board = new ProjectBoard();
  board.note({ id: '1' }, 'accepted', { month: '2026-12', position: 900 });
  board.note({ id: '1' }, 'accepted', { month: '2027-01', position: 1 });
  expect(board.busiest(none)[0]?.usage).toEqual({ month: '2027-01', position: 1 });
});

it('watches a bounded number of projects and shows the busiest of them', () => {
  const board = new ProjectBoard();
  const projects = Array.from({ length: PROJECTS_WATCHED_MAX + 1 }, (_, id) => ({ id: `${id}` }));
  for (const project of projects) board.note(project, 'accepted');
  for (const at of [5, PROJECTS_WATCHED_MAX, PROJECTS_WATCHED_MAX])
    board.note(projects[at] as { id: string }, 'accepted');
  const shown = board.busiest(none);
  expect(shown).toHaveLength(PROJECTS_SHOWN_MAX);
  expect(shown[0]).toMatchObject({ id: '5', requests: 2 });
  expect(shown.map(({ id }) => id)).not.toContain(`${PROJECTS_WATCHED_MAX}`);
});

it('sums the workers, and leaves what they sent untouched', () => {
  const one = { ...figures('a', 2), usage: { month: '2026-07', position: 5 } };
  const other = { ...figures('a', 3), usage: { month: '2026-07', position: 9 }, quota: 10 };
  expect(mergeProjects([[one, figures('b', 4)], [other]])).toEqual([
    { ...figures('a', 5), usage: { month: '2026-07', position: 9 }, quota: 10 },
    figures('b', 4),
  ]);
  expect(one.requests).toBe(2);
});
