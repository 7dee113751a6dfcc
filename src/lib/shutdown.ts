/** Resolves at the first SIGINT or SIGTERM, or when the parent that holds our IPC channel dies. */
export async function untilStopped(): Promise<void> {
  await new Promise<void>((resolve) => {
    process.once('SIGINT', () => resolve());
    process.once('SIGTERM', () => resolve());
    process.once('disconnect', () => resolve());
    if (process.send && !process.connected) resolve(); // it died while we were starting, and nobody says so again
  });
  process.channel?.unref(); // listening for 'disconnect' would keep the process alive after its last work
}
