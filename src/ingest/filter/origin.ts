/**
 * Filter of allowed sites: compares the request's Origin or Referer with the patterns
 * `[scheme://]host[:port]` of a project record.
 */
import { type Filter, type RequestFacts, siteOf } from './payload.ts';

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'http:': '80', 'https:': '443' };

/**
 * One compiled pattern. `scheme` undefined means http or https. `host` is without its `*.`; ''
 * matches every host. `port` undefined means any. A pattern with a scheme and a host always has a
 * port, because `https://a.com` and `https://a.com:443` are the same.
 */
type OriginPattern = {
  readonly scheme: string | undefined;
  readonly host: string;
  readonly subdomains: boolean;
  readonly port: string | undefined;
};

const PATTERN = /^(?:(https?):\/\/)?(\*\.)?(\*|\[[^\]]+\]|[^\s,;:/?#@[\]\\*]+)(?::(\d{1,5}))?$/i;

const withoutFinalDot = (host: string): string => (host.endsWith('.') ? host.slice(0, -1) : host);

function compile(pattern: string): OriginPattern | undefined {
  const [, scheme, subdomains, host = '', port] = PATTERN.exec(pattern) ?? [];
  if (host === '' || (host === '*' && subdomains)) return undefined;
  const protocol = scheme && `${scheme.toLowerCase()}:`;
  // URL normalises the host (case, IDNA, IPv6) and refuses ports above 65535.
  const url = siteOf(`http://${host === '*' ? 'any' : host}${port ? `:${port}` : ''}`);
  if (!url) return undefined;
  return {
    scheme: protocol,
    host: host === '*' ? '' : withoutFinalDot(url.hostname),
    subdomains: subdomains !== undefined,
    port: port ? String(Number(port)) : protocol && host !== '*' ? DEFAULT_PORTS[protocol] : undefined,
  };
}

/**
 * Returns the fault of one origin pattern, as a sentence; undefined when the pattern is
 * well-formed.
 */
export function originPatternProblem(pattern: string): string | undefined {
  if (compile(pattern)) return undefined;
  return (
    `${JSON.stringify(pattern)} is no origin pattern: expected [http(s)://]host[:port], ` +
    'where the host may be * or begin with *., without a path'
  );
}

const webUrl = (text: string): URL | undefined => (/^https?:\/\//i.test(text) ? siteOf(text) : undefined);

function admits(pattern: OriginPattern, url: URL, host: string): boolean {
  if (pattern.scheme !== undefined && pattern.scheme !== url.protocol) return false;
  if (pattern.port !== undefined && pattern.port !== (url.port || DEFAULT_PORTS[url.protocol])) return false;
  if (pattern.host === '' || pattern.host === host) return true;
  return pattern.subdomains && host.endsWith(`.${pattern.host}`);
}

/**
 * Makes the filter that removes requests from sites that are not allowed. A request without a site
 * (no http or https URL) is kept. A malformed pattern matches nothing, so a list of such patterns
 * alone allows no site.
 */
export function originFilter(patterns: readonly string[]): Filter {
  const allowed = patterns.map(compile).filter((pattern) => pattern !== undefined);
  const judgeHead = ({ origin, referer }: RequestFacts): boolean => {
    const url = webUrl(origin) ?? webUrl(referer);
    if (!url) return false;
    const host = withoutFinalDot(url.hostname);
    return !allowed.some((pattern) => admits(pattern, url, host));
  };
  return { name: 'origin', judgeHead };
}
