import type { Config } from '../../config.ts';
import type { Log } from '../log.ts';
import type { Tracing } from './tracing.ts';

/** Opens tracing when the settings turn it on. Otherwise the SDK is not loaded. */
export async function openTracing(
  { tracing }: Pick<Config, 'tracing'>,
  parts: { service: string; log: Log },
): Promise<Tracing | undefined> {
  if (!tracing) return undefined;
  const { OtlpTracing } = await import('./otlp.ts');
  return new OtlpTracing({ ...tracing, ...parts });
}
