// A page with an unmodified @sentry/browser: reports an error on a click, records its session. Bundled by the test.
import * as Sentry from '@sentry/browser';

const replay = Sentry.replayIntegration({
  maskAllText: false,
  minReplayDuration: 0,
  flushMinDelay: 500,
  flushMaxDelay: 1_000,
});
// The SDK would send with another frame's fetch where the page's own looks wrapped.
const { instrumentedFetch } = window;
Sentry.init({
  ...(instrumentedFetch && { transport: (options) => Sentry.makeFetchTransport(options, instrumentedFetch) }),
  dsn: new URLSearchParams(location.search).get('dsn'),
  integrations: [replay],
  replaysSessionSampleRate: 1,
  replaysOnErrorSampleRate: 1,
  release: 'page@1.0.0',
});
window.replayId = () => replay.getReplayId();
window.report = () => Sentry.captureException(new RangeError('button pressed too hard'));
window.flushReplay = () => replay.flush();
