const EXTENSIONS = /^(chrome|moz|safari|safari-web)-extension:\/\//;
const CRAWLERS = /bot|crawler|spider|slurp/i;
const LOCAL = /^(localhost|127\.|0\.0\.0\.0|\[::1\])/;

function hostOf(url) {
  try {
    return new URL(url).hostname;
  } catch {
    return '';
  }
}

/** The three filters in the way most services have them: the payload is parsed and looked at. */
export function isUnwanted({ items }, headers) {
  const item = items.find(({ header }) => header.type === 'event' || header.type === 'transaction');
  if (!item) return false;
  const payload = JSON.parse(item.payload.toString('utf8'));
  const frames = payload.exception?.values?.[0]?.stacktrace?.frames ?? [];
  if (frames.some((frame) => EXTENSIONS.test(frame.abs_path ?? frame.filename ?? ''))) return true;
  if (LOCAL.test(hostOf(payload.request?.url ?? ''))) return true;
  const own = headers['user-agent'] ?? '';
  return CRAWLERS.test(payload.request?.headers?.['User-Agent'] ?? (own.startsWith('Mozilla/') ? own : ''));
}
