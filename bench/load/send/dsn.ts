/** Parses DSNs, which name the projects to send to. */
import { readFileSync } from 'node:fs';
import type { Target } from '../../workload.ts';
import { UsageError } from '../command/values.ts';

export type Dsn = { origin: string; target: Target };

/**
 * Parses a DSN of the form `scheme://key@host/prefix/id`.
 * @param from the option that has the DSN, for errors
 * @throws UsageError
 */
export function parseDsn(dsn: string, from: string): Dsn {
  const url = URL.canParse(dsn) ? new URL(dsn) : undefined;
  const path = url?.pathname.split('/').filter(Boolean) ?? [];
  const id = path.pop();
  const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:';
  // The error does not repeat the DSN, because its key is a secret.
  if (!url || !isHttp || !url.username || id === undefined)
    throw new UsageError(`${from}: a DSN is http://KEY@HOST:PORT/PROJECT`);
  const { protocol, host, username: key } = url;
  const prefix = path.length > 0 ? `/${path.join('/')}` : undefined;
  return { origin: `${protocol}//${host}`, target: { id, key, prefix } };
}

/**
 * Reads a file with one DSN on each line.
 * @throws UsageError
 */
export function readDsnFile(path: string): Dsn[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`--dsn-file: ${(error as Error).message}`);
  }
  const dsns = text.split('\n').flatMap((line, at) => {
    const dsn = line.trim();
    return dsn === '' || dsn.startsWith('#') ? [] : [parseDsn(dsn, `--dsn-file, line ${at + 1}`)];
  });
  if (dsns.length === 0) throw new UsageError(`--dsn-file: ${path} has no DSN`);
  return dsns;
}
