/**
 * Resolves at the first SIGINT or SIGTERM, or when the parent that holds our IPC channel dies. Does
 * not keep the process alive.
 */
export function untilStopped(): Promise<void> {
  return new Promise<void>((resolve) => {
    process.once('SIGINT', () => resolve());
    process.once('SIGTERM', () => resolve());
    process.once('disconnect', () => resolve());
    // Listening for 'disconnect' has undone it: neither a failed start nor the last work waits for
    // the parent.
    process.channel?.unref();
    // It died while we were starting, and no event says so again.
    if (process.send && !process.connected) resolve();
  });
}
