/**
 * First safe minor version of nats-server 2 in a cluster. Clusters of 2.9 lost acknowledged
 * messages when a leader stood still for eight seconds; clusters of 2.15 lost none
 * (docs/faults.md). Versions between were not tried.
 */
const SAFE_2_MINOR_MIN = 15;

/** The version that a server reports. `cluster` is undefined for a single server. */
export type ServerVersion = { version: string; cluster?: string | undefined };

/** Describes the loss that a cluster of this version may cause; undefined when no loss is known. */
export function clusterRisk({ version, cluster }: ServerVersion): string | undefined {
  if (cluster === undefined) return undefined;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major > 2 || (major === 2 && minor >= SAFE_2_MINOR_MIN)) return undefined;
  return `a cluster of ${version} may lose acknowledged envelopes when a leader stands still for seconds`;
}

export const CLUSTER_RISK_FIX = `Use nats-server 2.${SAFE_2_MINOR_MIN} or newer for a cluster.`;
