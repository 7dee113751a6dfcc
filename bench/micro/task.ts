/** What a micro bench measures. `run` does `operations` operations, so that the clock's own cost does not count. */
export type MicroTask = { name: string; operations: number; run(): void | Promise<void> };

/** A task that repeats one operation often enough for the clock. */
export function micro(name: string, operation: () => unknown): MicroTask {
  return {
    name,
    operations: micro.operations,
    run: () => {
      for (let i = 0; i < micro.operations; i++) operation();
    },
  };
}
micro.operations = 100;
