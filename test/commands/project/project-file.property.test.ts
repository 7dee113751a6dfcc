/** A file of projects that broke, anywhere, is read, or is refused by name: no other error. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  type FileProject,
  ProjectFileError,
  parseProjectFile,
  projectFileText,
} from '../../../src/commands/project/project-file.ts';
import type { Project } from '../../../src/projects/project.ts';
import { givenSeed, rounds } from '../../support/rounds.ts';

const PROJECTS: Project[] = [
  {
    id: '42',
    alias: '4200',
    key: 'abc',
    plan: 'Free',
    rateLimit: 9,
    rateLimits: { errors: 5 },
    quota: 5,
    overage: true,
    filters: ['localhost'],
    allowedOrigins: ['*.x.com', 'https://y.org'],
    scrub: ['emails', 'keys'],
    scrubKeys: ['ssn'],
    fillIp: true,
  },
  {
    id: '7',
    key: 'k',
    keys: [
      { key: 'k', label: 'web', enabled: true, expires: '2130-01-01T00:00:00.000Z' },
      { key: 'l', enabled: false, rateLimit: 3 },
    ],
    plan: 'Pro',
    overage: false,
    filters: [],
    allowedOrigins: [],
  },
];
const stored = (projects: readonly Project[]) => projects.map((project) => ({ project, revision: 7 }));
const FILES = [projectFileText(stored(PROJECTS)), JSON.stringify({ projects: PROJECTS.slice(0, 1) })];

it('a label that would steer a terminal is escaped, and read as it was', () => {
  const label = 'a\u202eb\u001b[2J"\'\nc';
  const [, project] = PROJECTS as [Project, Project];
  const labelled = { ...project, keys: [{ key: 'k', label, enabled: true }] };
  const text = projectFileText(stored([labelled]));
  expect(text).not.toContain('\u202e');
  expect(text).not.toContain('\u001b');
  expect(parseProjectFile(text, 'f')[0]?.keys?.[0]?.label).toBe(label);
});

/** Signs and words of YAML, values of the wrong type, names that JavaScript knows. */
const PIECES = [
  ...[
    '&a ',
    '*a',
    '<<: *a',
    '!!binary ',
    '!!set ',
    '!!js/function ',
    '? ',
    '? [a]\n: ',
    '| ',
    '> ',
    '---\n',
    '...\n',
    '%YAML 1.1\n',
  ],
  ...[
    '{',
    '}',
    '[',
    ']',
    ':',
    ': ',
    ',',
    '- ',
    '\n',
    '  ',
    '\t',
    '"',
    "'",
    '#',
    '~',
    '@',
    '`',
    '\u0000',
    '\ufeff',
    '\ud800',
  ],
  ...[
    'null',
    'true',
    '1e400',
    '-1',
    '.nan',
    '0x10',
    '2030-01-01',
    '9007199254740993',
    '__proto__: 1',
    'constructor: {}',
    'projects: ',
  ],
];
/** `at` is a share of the length. A double would be next to 0 nearly always: it is drawn by its bits. */
const PLACES = 2 ** 20;
const damage = fc.record({
  at: fc.nat({ max: PLACES - 1 }).map((place) => place / PLACES),
  drop: fc.oneof(fc.constant(0), fc.nat(12)),
  put: fc.oneof(fc.constantFrom(...PIECES), fc.string({ unit: 'binary', maxLength: 3 })),
});
const file = fc
  .tuple(fc.constantFrom(...FILES), fc.array(damage, { minLength: 1, maxLength: 4 }))
  .map(([whole, damages]) =>
    damages.reduce((text, { at, drop, put }) => {
      const from = Math.floor(at * text.length);
      return text.slice(0, from) + put + text.slice(from + drop);
    }, whole),
  );

/** Projects, or why there are none. Any other error fails the test. */
function read(text: string): FileProject[] | string {
  try {
    return parseProjectFile(text, 'file.yaml');
  } catch (error) {
    expect(error, (error as Error).stack).toBeInstanceOf(ProjectFileError);
    return (error as ProjectFileError).message;
  }
}

it('is read as projects that it also reads when they are written anew, or is refused', () => {
  let taken = 0;
  let refused = 0;
  fc.assert(
    fc.property(file, (text) => {
      const found = read(text);
      if (typeof found === 'string') {
        refused++;
        expect(found).toMatch(/^file\.yaml(:\d+)?: ./s);
      } else {
        taken++;
        expect(read(JSON.stringify({ projects: found }))).toEqual(found);
      }
    }),
    { numRuns: rounds(20_000, 1_000), ...givenSeed },
  );
  // Damage of both kinds was met.
  expect(Math.min(taken, refused)).toBeGreaterThan(5);
});
