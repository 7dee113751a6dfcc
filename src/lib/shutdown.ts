import { constants } from 'node:os';

/** One Ctrl-C may come twice: the terminal sends it to all of a group, and npm passes it on. */
const SAME_SIGNAL_MS = 1_000;

/**
 * Resolves at the first SIGINT or SIGTERM, or when the parent that holds our IPC channel dies. Does
 * not keep the process alive. A signal that comes later than SAME_SIGNAL_MS after the first ends
 * the process at once.
 */
export function untilStopped(): Promise<void> {
  return new Promise<void>((resolve) => {
    let stoppedAt: number | undefined;
    const onSignal = (signal: NodeJS.Signals): void => {
      stoppedAt ??= performance.now();
      resolve();
      if (performance.now() - stoppedAt < SAME_SIGNAL_MS) return;
      process.removeListener(signal, onSignal);
      process.kill(process.pid, signal);
      // The kernel spares the first process of a container.
      process.exit(128 + constants.signals[signal]);
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
    process.once('disconnect', () => resolve());
    // Listening for 'disconnect' has undone it: neither a failed start nor the last work waits for
    // the parent.
    process.channel?.unref();
    // It died while we were starting, and no event says so again.
    if (process.send && !process.connected) resolve();
  });
}
