/** Files of projects that bench/hostile/apply-file.ts derives, and such files, damaged. */
import { expect, it } from 'vitest';
import { readHostileFile } from '../../../bench/hostile/apply-files.ts';
import { randomOf } from '../../../bench/hostile/mutations.ts';
import { parseProjectFile, projectFileText } from '../../../src/commands/project/project-file.ts';
import type { Project } from '../../../src/projects/project.ts';
import { givenSeed, rounds } from '../../support/rounds.ts';

it('a label that would steer a terminal is escaped, and read as it was', () => {
  const label = 'a\u202eb\u001b[2J"\'\nc';
  const keys = [{ key: 'k', label, enabled: true }];
  const rest = { overage: false, filters: [], allowedOrigins: [] };
  const project: Project = { id: '7', key: 'k', keys, plan: 'Pro', ...rest };
  const text = projectFileText([{ project, revision: 7 }]);
  expect(text).not.toContain('\u202e');
  expect(text).not.toContain('\u001b');
  expect(parseProjectFile(text, 'f')[0]?.keys?.[0]?.label).toBe(label);
});

it('a key that is a list is refused, and nothing but the refusal is printed', async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  process.on('warning', warned);
  const text = 'projects:\n  - id: 1\n    plan: Pro\n    rateLimits:\n      ? [error, log]\n      : 1\n';
  expect(() => parseProjectFile(text, 'f')).toThrow('f:4: project 1, rateLimits.[ error, log ]');
  await new Promise(setImmediate);
  process.off('warning', warned);
  expect(warnings).toEqual([]);
});

it('of any file what is read is what it says, or each fault is named by its line, project and field', () => {
  const { seed = Math.floor(Math.random() * 0x1_0000_0000) } = givenSeed;
  const told = { taken: 0, refused: 0 };
  const files = rounds(20_000, 2_000);
  for (let file = 1; file <= files; file++) {
    const { isRefused, how, text, wrong } = readHostileFile(randomOf(seed, file));
    if (wrong !== undefined)
      expect.fail(`file ${file} of seed ${seed}, ${how}: ${JSON.stringify(text)}\n${wrong}`);
    told[isRefused ? 'refused' : 'taken']++;
  }
  expect(Math.min(told.taken, told.refused)).toBeGreaterThan(files / 10);
});
