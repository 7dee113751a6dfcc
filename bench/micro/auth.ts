import { findKey } from '../../src/ingest/http/client-key.ts';
import { type MicroTask, micro } from './task.ts';

const KEY = '0123456789abcdef0123456789abcdef';
const QUERY = `sentry_version=7&sentry_client=bench%2F1&sentry_key=${KEY}`;
const HEADER = `Sentry sentry_version=7, sentry_client=bench/1, sentry_key=${KEY}`;

function found(key: string): void {
  if (key !== KEY) throw new Error('the key was not found');
}

export const authTasks = (): MicroTask[] => [
  micro('key in the query', () => found(findKey(QUERY, () => ''))),
  micro('key in x-sentry-auth', () => found(findKey('', (name) => (name === 'x-sentry-auth' ? HEADER : '')))),
];
