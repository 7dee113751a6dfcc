/** Resolves at the first SIGINT or SIGTERM, or when the parent that holds our IPC channel dies. */
export async function untilStopped(): Promise<void> {
  await new Promise<void>((resolve) => {
    process.once('SIGINT', () => resolve());
    process.once('SIGTERM', () => resolve());
    process.once('disconnect', () => resolve());
  });
  process.channel?.unref(); // listening for 'disconnect' would keep the process alive after its last work
}
