import { BlockList, isIP, SocketAddress } from 'node:net';

/** The head of a request, as far as it says who sent it. */
type Head = { getList(lowerCaseName: string): string };

const familyOf = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 4 ? 'ipv4' : 'ipv6');
const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/;

/**
 * Trusted proxies that are followed; a client may write thousands of their addresses before its
 * own.
 */
const HOPS_MAX = 32;

/** The usual way to write the address; undefined when it is none. */
function canonical(address: string): string | undefined {
  if (isIP(address) === 0 || address.includes('%')) return undefined;
  const text = new SocketAddress({ address, family: familyOf(address) }).address;
  return MAPPED_IPV4.exec(text)?.[1] ?? text;
}

/** An element of the header, which some proxies write with a port. */
const withoutPort = (text: string): string =>
  /^\[(.*)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;

/**
 * Whose word counts on the address of a client (SLUICE_TRUSTED_PROXIES). Each proxy adds the
 * address that it was asked from at the end of X-Forwarded-For, so the last one that is of no
 * trusted proxy is the client's. All before it is what the client itself says.
 */
export class TrustedProxies {
  readonly #trusted = new BlockList();

  /** @param networks addresses, or networks as `10.0.0.0/8` */
  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address = '', bits] = network.split('/');
      if (bits === undefined) this.#trusted.addAddress(address, familyOf(address));
      else this.#trusted.addSubnet(address, Number(bits), familyOf(address));
    }
  }

  /**
   * @param peer the other end of the connection
   * @returns undefined when a proxy names no address
   */
  clientOf(head: Head, peer: string): string | undefined {
    let address = canonical(peer);
    if (address === undefined || !this.#isTrusted(address)) return address;
    const hops = head.getList('x-forwarded-for').split(',').slice(-HOPS_MAX).reverse();
    for (const hop of hops) {
      address = canonical(withoutPort(hop.trim()));
      if (address === undefined || !this.#isTrusted(address)) return address;
    }
    return address;
  }

  #isTrusted(address: string): boolean {
    return this.#trusted.check(address, familyOf(address));
  }
}
