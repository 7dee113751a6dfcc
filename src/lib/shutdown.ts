/** Resolves at the first SIGINT or SIGTERM, or when the parent that holds our IPC channel dies. */
export function untilStopped(): Promise<void> {
  return new Promise((resolve) => {
    process.once('SIGINT', () => resolve());
    process.once('SIGTERM', () => resolve());
    process.once('disconnect', () => resolve());
  }).then(() => {
    process.channel?.unref(); // listening for 'disconnect' would keep the process alive after its last work
  });
}
