import { readFileSync } from 'node:fs';

/**
 * When the credentials for NATS in a file end, in Unix seconds; undefined where they do not, or
 * where the file cannot be read.
 */
export function credsExpiry(file: string): number | undefined {
  try {
    const [, claims = ''] =
      /-BEGIN NATS USER JWT-+\s*[^.\s]+\.([^.\s]+)/.exec(readFileSync(file, 'utf8')) ?? [];
    const { exp } = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { exp?: unknown };
    return typeof exp === 'number' && exp > 0 ? exp : undefined;
  } catch {
    return undefined;
  }
}
