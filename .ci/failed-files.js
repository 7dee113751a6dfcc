// Prints the test files that failed, by the JSON report of vitest: at most five, else none. More is no flake, and neither is a run that
// ended without a report or failed outside of its files.
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';

const FILES_MAX = 5;

const read = (path) => {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).testResults;
  } catch {
    return [];
  }
};

const failed = read(process.argv[2]).filter(({ status }) => status === 'failed');
if (failed.length <= FILES_MAX) for (const { name } of failed) console.log(relative('.', name));
