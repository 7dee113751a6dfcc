/** docs/clients.md names the SDKs and versions that the matrix runs, and each manifest pins one version. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { EXPORTERS } from './otlp/exporters.ts';
import { SDKS, type Sdk, versionOf } from './sdks.ts';

const CLIENTS = readFileSync(new URL('../../docs/clients.md', import.meta.url), 'utf8');

it('the table of SDKs in docs/clients.md has the versions that the manifests pin', () => {
  const [, rows = ''] = CLIENTS.split(/^\| Language \| SDK .*\n\| -.*\n/m);
  const [table = ''] = rows.split('\n\n');
  const cells = table.split('\n').map((row) => row.split('|').map((cell) => cell.trim()));
  const stated = cells.map(([, language, sdk, version, host]) => [language, sdk, version, host]);
  const hosted = ({ manifest, host }: Sdk): string =>
    host ? `${host.title} ${versionOf({ ...host, manifest })}` : '';
  expect(stated).toEqual(
    SDKS.map((sdk) => [sdk.language, `\`${sdk.package}\``, versionOf(sdk), hosted(sdk)]),
  );
});

it.each(SDKS)('the manifest of $language pins an exact version', (sdk) => {
  expect(versionOf(sdk)).toMatch(/^\d+\.\d+\.\d+$/);
});

it('the table of exporters in docs/clients.md has the versions that the manifests pin', () => {
  const [, rows = ''] = CLIENTS.split(/^\| Language \| Package .*\n\| -.*\n/m);
  expect(rows.split('\n\n')[0]?.split('\n')).toEqual(
    EXPORTERS.map(({ sdk }) => `| ${sdk.language} | \`${sdk.package}\` | ${versionOf(sdk)} |`),
  );
});
