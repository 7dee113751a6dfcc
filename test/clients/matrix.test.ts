/**
 * The whole matrix, `npm run test:clients`. JavaScript always takes part, the other languages where
 * their toolchain is found. `TEST_CLIENTS=python,go` says which of them take part; then a toolchain
 * that is missing is a failure.
 */
import { expect, it } from 'vitest';
import { COLLECTOR } from './otlp/exporters.ts';
import { describeMatrix } from './scenario.ts';
import { asked, isAsked, lacksStill, type Sdk, say } from './sdks.ts';
import { JAVASCRIPT, OTHERS } from './variants.ts';

const languages = [...new Set(OTHERS.map(({ sdk }) => sdk))];

const leftOut = new Map<Sdk, string>();
for (const sdk of languages) {
  const lacking = lacksStill(sdk);
  if (!isAsked(sdk)) leftOut.set(sdk, 'TEST_CLIENTS does not name it');
  else if (lacking) leftOut.set(sdk, `this fails here: ${lacking}`);
}
const lines = [...leftOut].map(([{ language }, why]) => `${language} IS LEFT OUT of the matrix: ${why}`);
for (const line of lines) say(`\n!!! ${line}`);

it(['every SDK that is asked for takes part', ...lines].join('; '), () => {
  const known = [...languages, COLLECTOR.sdk].map(({ family }) => family);
  expect(asked?.filter((name) => !known.includes(name)) ?? []).toEqual([]);
  if (asked) expect([...leftOut.keys()].filter(isAsked)).toEqual([]);
});

describeMatrix([...JAVASCRIPT, ...OTHERS.filter(({ sdk }) => !leftOut.has(sdk))]);
