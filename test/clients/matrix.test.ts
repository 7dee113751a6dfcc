/**
 * The whole matrix, `npm run test:clients`. JavaScript always takes part, the other languages where
 * their toolchain is found. `TEST_CLIENTS=python,go` says which of them take part; then a toolchain
 * that is missing is a failure.
 */
import { expect, it } from 'vitest';
import { aptInstall } from '../../src/commands/dev/install.ts';
import { describeMatrix } from './scenario.ts';
import { asked, isAsked, lacks, type Sdk } from './sdks.ts';
import { JAVASCRIPT, OTHERS } from './variants.ts';

const languages = [...new Set(OTHERS.map(({ sdk }) => sdk))];

const say = (line: string): void => void process.stderr.write(`${line}\n`);

/** What is asked for by name may be installed. */
function lacksStill(sdk: Sdk): string | undefined {
  const lacking = lacks(sdk);
  const installed = lacking && asked && isAsked(sdk) && sdk.apt && aptInstall(sdk.apt, say);
  return installed ? lacks(sdk) : lacking;
}

const leftOut = new Map<Sdk, string>();
for (const sdk of languages) {
  const lacking = lacksStill(sdk);
  if (!isAsked(sdk)) leftOut.set(sdk, 'TEST_CLIENTS does not name it');
  else if (lacking) leftOut.set(sdk, `this fails here: ${lacking}`);
}
const lines = [...leftOut].map(([{ language }, why]) => `${language} IS LEFT OUT of the matrix: ${why}`);
for (const line of lines) say(`\n!!! ${line}`);

it(['every SDK that is asked for takes part', ...lines].join('; '), () => {
  const known = languages.map(({ family }) => family);
  expect(asked?.filter((name) => !known.includes(name)) ?? []).toEqual([]);
  if (asked) expect([...leftOut.keys()].filter(isAsked)).toEqual([]);
});

describeMatrix([...JAVASCRIPT, ...OTHERS.filter(({ sdk }) => !leftOut.has(sdk))]);
