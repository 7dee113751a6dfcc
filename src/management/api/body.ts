import type { IncomingMessage } from 'node:http';
import { ProblemError } from './problem.ts';

/** A project with a hundred keys and origins takes some 100 KiB. */
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
 * A page of another site can make a browser send a request to this machine. With this media type,
 * or with a token, the browser asks first. So one of them is demanded, also with an empty body.
 */
function isTyped({ headers }: IncomingMessage): boolean {
  const type = headers['content-type'];
  return type === undefined ? headers.authorization !== undefined : JSON_TYPE.test(type);
}

/** The JSON of a request; `{}` of an empty body. @throws ProblemError */
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
