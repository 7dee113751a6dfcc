/**
 * The oldest nats-server of whose clusters no loss is known: docs/faults.md stopped leaders of 2.9
 * and of 2.15. Versions between were not tried.
 */
const SAFE_2_MINOR_MIN = 15;

/** What a server says of itself; `cluster` undefined: it is a single one. */
export type ServerVersion = { version: string; cluster?: string | undefined };

/** What may happen to what is queued in a cluster of this version; undefined: nothing is known. */
export function clusterRisk({ version, cluster }: ServerVersion): string | undefined {
  if (cluster === undefined) return undefined;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major > 2 || (major === 2 && minor >= SAFE_2_MINOR_MIN)) return undefined;
  return `a cluster of ${version} may lose acknowledged envelopes when a leader stands still for seconds`;
}

export const CLUSTER_RISK_FIX = `Use nats-server 2.${SAFE_2_MINOR_MIN} or newer for a cluster.`;
