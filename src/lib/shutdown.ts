import { constants } from 'node:os';

/**
 * Signals within this time count as one Ctrl-C. The terminal sends a signal to the whole process
 * group, and npm passes on the one that it gets, so sluice may get the signal twice.
 */
const SAME_SIGNAL_MS = 1_000;

/**
 * Resolves at the first SIGINT or SIGTERM, or when the parent at the other end of the IPC channel
 * dies. The listener does not keep the process alive. A signal more than SAME_SIGNAL_MS after the
 * first ends the process at once.
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
      // The kernel does not let a signal end the first process of a container, so the process exits
      // itself.
      process.exit(128 + constants.signals[signal]);
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
    process.once('disconnect', () => resolve());
    // The listener for 'disconnect' keeps the channel referenced. Without this line, a process
    // whose start failed or whose work is done would not end before its parent.
    process.channel?.unref();
    // When the parent died during the start, no event 'disconnect' follows.
    if (process.send && !process.connected) resolve();
  });
}
