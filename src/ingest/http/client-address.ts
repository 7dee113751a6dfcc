import { BlockList, isIP, SocketAddress } from 'node:net';

/** The part of a request's head that tells who sent the request. */
type Head = { getList(lowerCaseName: string): string };

const familyOf = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 4 ? 'ipv4' : 'ipv6');
const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/;

/**
 * Most elements of X-Forwarded-For that are read, from its end. A client may write thousands of
 * addresses of trusted proxies into the header.
 */
const HOPS_MAX = 32;

/** Returns the usual form of an address; undefined when the text is no address. */
function canonical(address: string): string | undefined {
  if (isIP(address) === 0 || address.includes('%')) return undefined;
  const text = new SocketAddress({ address, family: familyOf(address) }).address;
  return MAPPED_IPV4.exec(text)?.[1] ?? text;
}

/** Removes the port from an element of X-Forwarded-For; some proxies add one. */
const withoutPort = (text: string): string =>
  /^\[(.*)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;

/**
 * Finds the address of a client behind trusted proxies (SLUICE_TRUSTED_PROXIES). Each proxy appends
 * to X-Forwarded-For the address from which its request came. So the last address that is not a
 * trusted proxy's is the client's. Everything before it was written by the client itself and proves
 * nothing.
 */
export class TrustedProxies {
  readonly #trusted = new BlockList();

  /** @param networks addresses, or networks such as `10.0.0.0/8` */
  constructor(networks: readonly string[]) {
    for (const network of networks) {
      const [address = '', bits] = network.split('/');
      if (bits === undefined) this.#trusted.addAddress(address, familyOf(address));
      else this.#trusted.addSubnet(address, Number(bits), familyOf(address));
    }
  }

  /**
   * Returns the address of the client.
   * @param peer address of the other end of the connection
   * @returns undefined when `peer` is no address, or when a trusted proxy says that its request
   * came from something that is no address
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
