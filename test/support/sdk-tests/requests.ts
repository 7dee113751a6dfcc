/**
 * Requests in the forms in which the tests of SDKs send, write or read them (docs/sdk-tests.md names
 * the tests). The values are our own.
 */
import { COCOA, DOTNET, GO, JAVA, NATIVE, RUST } from './compiled.ts';
import { JAVASCRIPT, PHP, PYTHON, RUBY } from './interpreted.ts';
import type { SdkRequest } from './parts.ts';

/** How each SDK sends its key: the query, or the header x-sentry-auth. */
const QUERY = '?sentry_version=7&sentry_key=KEY&sentry_client=sentry.javascript.browser%2F11.12.0';
export const SDK_REQUESTS: Readonly<Record<string, { auth: string; requests: readonly SdkRequest[] }>> = {
  javascript: { auth: QUERY, requests: JAVASCRIPT },
  python: {
    auth: 'Sentry sentry_key=KEY, sentry_version=7, sentry_client=sentry.python/2.75.0',
    requests: PYTHON,
  },
  go: { auth: 'Sentry sentry_version=7, sentry_client=sentry.go/0.50.0, sentry_key=KEY', requests: GO },
  java: { auth: 'Sentry sentry_version=7,sentry_client=custom-client,sentry_key=KEY', requests: JAVA },
  rust: { auth: 'Sentry sentry_version=2.0, sentry_key=KEY', requests: RUST },
  ruby: {
    auth: 'Sentry sentry_version=7, sentry_timestamp=1790000000, sentry_key=KEY, sentry_client=sentry-ruby/6.6.2',
    requests: RUBY,
  },
  php: { auth: 'Sentry sentry_version=7, sentry_client=sentry.php/4.30.0, sentry_key=KEY', requests: PHP },
  dotnet: {
    auth: 'Sentry sentry_version=7,sentry_client=sentry.dotnet/6.9.0,sentry_key=KEY,sentry_secret=secret',
    requests: DOTNET,
  },
  native: {
    auth: 'Sentry sentry_key=KEY, sentry_version=7, sentry_client=sentry.native/0.9.1',
    requests: NATIVE,
  },
  cocoa: { auth: 'Sentry sentry_version=7,sentry_client=sentry.cocoa/9.9.0,sentry_key=KEY', requests: COCOA },
};
