import { lookup } from 'node:dns/promises';
import { connect, isIPv4 } from 'node:net';

/** An address of this machine to connect to from one that is listened on. */
function nearby(address: string): string {
  if (address === '0.0.0.0') return '127.0.0.1';
  return address === '::' ? '::1' : address;
}

/**
 * Looks whether a port could be listened on, without listening: the kernel resets who comes to a listener that closes again, and the clients of
 * a server that is just being started again do come. So a socket is bound to the port and connected to nowhere (port 0, which nobody
 * can have).
 * @throws when the port is taken or forbidden, or the address is not this machine's
 */
export async function checkPortIsFree(host: string, port: number): Promise<void> {
  const { address } = await lookup(host);
  await new Promise<void>((resolve, reject) => {
    const family = isIPv4(address) ? 4 : 6;
    const probe = connect({ host: nearby(address), port: 0, localAddress: address, localPort: port, family });
    probe.once('error', (cause: NodeJS.ErrnoException) => {
      if (cause.syscall === 'connect') resolve();
      else reject(new Error(`cannot listen on ${host}:${port}: ${cause.message}`, { cause }));
    });
  });
}
