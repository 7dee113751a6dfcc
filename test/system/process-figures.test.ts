/** CPU, memory, files and the delay of the event loop, of each process by itself. */
import { expect, it } from 'vitest';
import { childrenOf } from '../../bench/processes.ts';
import { System, until } from '../support/system.ts';

const NAMES = [
  'process_cpu_user_seconds_total',
  'process_cpu_system_seconds_total',
  'process_cpu_seconds_total',
  'process_start_time_seconds',
  'process_resident_memory_bytes',
  'process_open_fds',
  'process_max_fds',
  'nodejs_heap_size_total_bytes',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_eventloop_lag_mean_seconds',
  'nodejs_eventloop_lag_p50_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_eventloop_lag_max_seconds',
];

/** Values by metric and process. */
async function figures(adminUrl: string): Promise<Map<string, Map<string, number>>> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const found = new Map<string, Map<string, number>>();
  for (const [, name = '', process = '', value] of text.matchAll(
    /^((?:process|nodejs)_\w+)\{process="([^"]*)"\} (\S+)$/gm,
  ))
    found.set(name, (found.get(name) ?? new Map()).set(process, Number(value)));
  return found;
}

it('are told of the primary, of each worker and of the processor, and of a worker that takes a dead one’s place', async () => {
  const system = await System.start({ workers: 2 });
  try {
    const ofIngest = await figures(system.adminUrl);
    expect([...ofIngest.keys()].sort()).toEqual([...NAMES].sort());
    for (const [, values] of ofIngest)
      expect([...values.keys()].sort()).toEqual(['primary', 'worker 1', 'worker 2']);
    expect([...(await figures(`http://127.0.0.1:${system.processorPort}`)).keys()].sort()).toEqual(
      [...NAMES].sort(),
    );
    const of = (name: string, process: string) => ofIngest.get(name)?.get(process) ?? Number.NaN;
    for (const process of ['primary', 'worker 1', 'worker 2']) {
      expect(of('process_resident_memory_bytes', process)).toBeGreaterThan(20 * 1024 * 1024);
      expect(of('process_open_fds', process)).toBeGreaterThan(10);
      expect(of('process_open_fds', process)).toBeLessThan(of('process_max_fds', process));
      expect(of('process_start_time_seconds', process)).toBeGreaterThan(Date.now() / 1000 - 300);
    }
    const [worker] = childrenOf(system.ingest.child.pid as number);
    process.kill(worker as number, 'SIGKILL');
    const started = async () => (await figures(system.adminUrl)).get('process_start_time_seconds');
    const before = ofIngest.get('process_start_time_seconds');
    await until(async () => {
      const now = await started();
      const names = ['worker 1', 'worker 2'].filter((name) => now?.get(name) !== before?.get(name));
      return now?.size === 3 && names.some((name) => Number(now.get(name)) > Number(before?.get(name)) + 0.5);
    });
  } finally {
    await system.stop();
  }
});
