/** Once before all tests: installs the servers and the browser that the tests run on, where that is possible without a question. */
import { spawnSync } from 'node:child_process';
import type { TestProject } from 'vitest/node';
import { aptInstall, ensureServers } from '../../src/commands/dev/install.ts';
import { hostEnvironment } from '../../src/config.ts';
import { nativeProblem } from '../../src/ingest/native.ts';
import { findBrowser } from './browser.ts';
import { findPostgres } from './postgres.ts';
import { canStepClocks } from './step-clock.ts';

export default function setup({ vitest }: TestProject): void {
  const say = (line: string): void => console.log(line);
  const problem = nativeProblem(`npm run ${process.env.npm_lifecycle_event ?? 'test'}`);
  if (problem) throw new Error(problem);
  ensureServers(hostEnvironment(), say);
  // The tests of the image, a step of each release, want no more: a release must not fail for a browser that a machine does not have.
  if (vitest.projects.every(({ name }) => name === 'image')) return;
  if (spawnSync('curl', ['--version']).status !== 0 && !aptInstall(['curl'], say))
    throw new Error('the tests paste a curl line: sudo apt-get install -y curl');
  // Debian has the first and the second; Ubuntu has the third, a snap.
  const browsers = ['chromium-headless-shell', 'chromium', 'chromium-browser'];
  if (!findBrowser() && !browsers.some((browser) => aptInstall([browser], say)))
    throw new Error(
      'the browser tests need Chromium: sudo apt-get install -y chromium, or brew install --cask google-chrome',
    );
  if (!findPostgres() && !aptInstall(['postgresql'], say))
    throw new Error(
      'the tests of the postgres sink need its server: sudo apt-get install -y postgresql, or brew install postgresql@18',
    );
  if (process.platform === 'linux' && !canStepClocks() && !aptInstall(['gcc', 'libc6-dev'], say))
    throw new Error('clocks are stepped by a small C library: sudo apt-get install -y gcc libc6-dev');
}
