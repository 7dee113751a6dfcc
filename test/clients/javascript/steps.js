// What every application with an unmodified JavaScript SDK does: one step, and what the SDK returned.
const steps = (Sentry) => ({
  exception: ({ text }) => ({ id: Sentry.captureException(new TypeError(text)) }),
  message: ({ text }) => ({ id: Sentry.captureMessage(text) }),
  log: ({ text }) => Sentry.logger.info(text) ?? {},
  trace: ({ name, child }) =>
    Sentry.startSpan({ name }, (span) => {
      Sentry.startSpan({ name: child }, () => undefined);
      return { trace: span.spanContext().traceId };
    }),
  flush: () => Sentry.flush(10_000).then(() => ({})),
});

export function begin(Sentry, dsn, lifecycle) {
  const options = lifecycle ? { traceLifecycle: lifecycle } : {};
  Sentry.init({ dsn, tracesSampleRate: 1, enableLogs: true, ...options });
  const known = steps(Sentry);
  return async (step) => known[step.do](step);
}
