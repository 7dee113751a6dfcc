// A page with an unmodified @sentry/browser: reports an error on a click, records its session. Bundled by the test.
import * as Sentry from '@sentry/browser';

const replay = Sentry.replayIntegration({
  maskAllText: false,
  minReplayDuration: 0,
  flushMinDelay: 500,
  flushMaxDelay: 1_000,
});
const query = new URLSearchParams(location.search);
// The SDK would send with another frame's fetch where the page's own looks wrapped.
const { instrumentedFetch } = window;
Sentry.init({
  ...(instrumentedFetch && { transport: (options) => Sentry.makeFetchTransport(options, instrumentedFetch) }),
  dsn: query.get('dsn'),
  integrations: [replay, Sentry.browserTracingIntegration()],
  tracesSampleRate: 1,
  ...(query.has('lifecycle') && { traceLifecycle: query.get('lifecycle') }),
  replaysSessionSampleRate: 1,
  replaysOnErrorSampleRate: 1,
  release: 'page@1.0.0',
});
window.replayId = () => replay.getReplayId();
window.report = () => Sentry.captureException(new RangeError('button pressed too hard'));
window.flushReplay = () => replay.flush();
window.trace = async () => {
  const trace = Sentry.startSpan({ name: 'press', op: 'ui.action', forceTransaction: true }, (span) => {
    Sentry.startSpan({ name: 'price', op: 'compute' }, () => undefined);
    return span.spanContext().traceId;
  });
  await Sentry.flush(10_000);
  return trace;
};
