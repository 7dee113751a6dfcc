import { CORS_HEADERS } from './cors.ts';
import { headerLines, JSON_TYPE } from './outcome.ts';

const [first, ...rest] = [JSON_TYPE, ...CORS_HEADERS];

/**
 * The headers of every answer as one name and one value that holds the line breaks between them.
 */
export const COMMON_HEADERS = {
  name: first?.[0] ?? '',
  value: (first?.[1] ?? '') + headerLines(rest),
};
