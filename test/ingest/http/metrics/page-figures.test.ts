import { expect, it } from 'vitest';
import {
  mergeProjects,
  PageFigures,
  type ProjectRow,
} from '../../../../src/ingest/http/metrics/page-figures.ts';
import { PROJECTS_SHOWN_MAX, PROJECTS_WATCHED_MAX } from '../../../../src/limits.ts';
import type { ProjectState } from '../../../../src/projects/project-state.ts';
import { projectOf } from '../../limit/limit-fixture.ts';

const row = (id: string, requests: number): ProjectRow => ({
  id,
  requests,
  accepted: 0,
  filtered: 0,
  limited: 0,
});

it('counts each outcome where it belongs and keeps the newest position', () => {
  const figures = new PageFigures();
  const project = projectOf({ id: '1' });
  figures.note(project, 'accepted', { month: '2026-07', position: 7 });
  figures.note(project, 'accepted', { month: '2026-07', position: 6 });
  expect(figures.busiest()[0]?.quota).toBeUndefined();
  project.update({ ...project.record, quota: 10 }, 2, undefined);
  for (const outcome of ['filtered', 'rate_limited', 'quota_exceeded', 'invalid'] as const)
    figures.note(project, outcome);
  expect(figures.busiest()).toEqual([
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

it('shows no usage before a position is known', () => {
  const figures = new PageFigures();
  figures.note(projectOf({ id: '1' }), 'invalid');
  expect(figures.busiest()).toEqual([row('1', 1)]);
});

it('takes the first position of a new month for newer than the last of the old one', () => {
  const figures = new PageFigures();
  const project = projectOf({ id: '1' });
  figures.note(project, 'accepted', { month: '2026-12', position: 900 });
  figures.note(project, 'accepted', { month: '2027-01', position: 1 });
  figures.note(project, 'accepted', { month: '2026-12', position: 901 });
  expect(figures.busiest()[0]?.usage).toEqual({ month: '2027-01', position: 1 });
});

it('watches a bounded number of projects and shows the busiest of them', () => {
  const figures = new PageFigures();
  const projects = Array.from({ length: PROJECTS_WATCHED_MAX + 1 }, (_, id) => projectOf({ id: `${id}` }));
  for (const project of projects) figures.note(project, 'accepted');
  for (const at of [5, PROJECTS_WATCHED_MAX, PROJECTS_WATCHED_MAX])
    figures.note(projects[at] as ProjectState, 'accepted');
  const shown = figures.busiest();
  expect(shown).toHaveLength(PROJECTS_SHOWN_MAX);
  expect(shown[0]).toMatchObject({ id: '5', requests: 2 });
  expect(shown.map(({ id }) => id)).not.toContain(`${PROJECTS_WATCHED_MAX}`);
});

it('sums the workers, and leaves what they sent untouched', () => {
  const one = { ...row('a', 2), usage: { month: '2026-07', position: 5 } };
  const other = { ...row('a', 3), usage: { month: '2026-07', position: 9 }, quota: 10 };
  expect(mergeProjects([[one, row('b', 4)], [other]])).toEqual([
    { ...row('a', 5), usage: { month: '2026-07', position: 9 }, quota: 10 },
    row('b', 4),
  ]);
  expect(one.requests).toBe(2);
});
