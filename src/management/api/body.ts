import type { IncomingMessage } from 'node:http';
import { ProblemError } from './problem.ts';

/** Largest body of a request. A project with a hundred keys and origins takes about 100 KiB. */
const API_BODY_BYTES_MAX = 256 * 1024;
const JSON_TYPE = /^application\/(json|merge-patch\+json)\s*(;|$)/i;

async function bytesOf(req: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > API_BODY_BYTES_MAX) {
      const headers = { Connection: 'close' };
      throw new ProblemError('large', `A body has at most ${API_BODY_BYTES_MAX} bytes.`, { headers });
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/**
 * Tells whether a request has the JSON media type or, without any media type, a token. A browser
 * asks this port first (CORS preflight) before it sends such a request for another site's page. A
 * request with an empty body is checked, too, because another site's page could send it.
 */
function isTyped({ headers }: IncomingMessage): boolean {
  const type = headers['content-type'];
  return type === undefined ? headers.authorization !== undefined : JSON_TYPE.test(type);
}

/**
 * Reads the JSON body of a request; an empty body counts as `{}`.
 * @throws ProblemError
 */
export async function readJson(req: IncomingMessage): Promise<unknown> {
  if (!isTyped(req))
    throw new ProblemError('media', 'Send Content-Type: application/json.', {
      headers: { Accept: 'application/json' },
    });
  const text = (await bytesOf(req)).toString('utf8');
  if (text === '') return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ProblemError('invalid', `The body is no JSON: ${(error as Error).message}.`);
  }
}
