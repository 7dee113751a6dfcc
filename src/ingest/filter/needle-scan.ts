/**
 * Finds whether bytes hold any of many needles, ignoring ASCII case. The scan makes one table
 * look-up per byte, whatever the number of needles (Aho and Corasick 1975, with every failure link
 * followed when the table is made).
 *
 * A look-up needs the result of the one before, so a single pass waits for memory at each byte.
 * Four passes wait together: each reads its quarter of the bytes, and as far into the next quarter
 * as a needle may reach. Four passes take 1.1 µs for an event of 1.8 KB, one pass takes 2.9 µs.
 * bench/HISTORY.md compares other ways.
 */
import { assert } from '../../lib/assert.ts';

/**
 * The state after a needle was found. The scan never leaves this state, so it checks for the state
 * only once, at the end.
 */
const FOUND = 0;
const STATES_MAX = 2 ** 16;

type Node = { children: Map<number, Node>; fail: Node | undefined; found: boolean; state: number };

const newNode = (): Node => ({ children: new Map(), fail: undefined, found: false, state: FOUND });

function plant(root: Node, needle: string): void {
  let node = root;
  for (let index = 0; index < needle.length; index++) {
    const byte = needle.charCodeAt(index);
    const next = node.children.get(byte) ?? newNode();
    node.children.set(byte, next);
    node = next;
  }
  node.found = true;
}

/**
 * Returns all nodes, nearest to the root first, and gives each its failure link: the node of its
 * longest proper suffix. A node whose suffix is the end of a needle counts as found, too.
 */
function linked(root: Node): Node[] {
  const nodes = [root];
  for (const node of nodes) {
    for (const [byte, child] of node.children) {
      let fail = node.fail;
      while (fail && !fail.children.has(byte)) fail = fail.fail;
      child.fail = fail?.children.get(byte) ?? root;
      child.found ||= child.fail.found;
      nodes.push(child);
    }
  }
  return nodes;
}

/** Returns the table of next states: 256 entries for each state, one for each byte. */
function tableOf(nodes: readonly Node[]): Uint16Array {
  const next = new Uint16Array((nodes.length + 1) << 8);
  for (const { state, fail, children } of nodes) {
    if (state === FOUND) continue;
    const row = state << 8;
    // Bytes without a child lead where they lead from the failure link, whose row is made already;
    // from the root, they lead back to the root.
    if (fail) next.copyWithin(row, fail.state << 8, (fail.state + 1) << 8);
    else next.fill(state, row, row + 256);
    for (const [byte, child] of children) {
      next[row | byte] = child.state;
      next[row | String.fromCharCode(byte).toUpperCase().charCodeAt(0)] = child.state;
    }
  }
  return next;
}

export class NeedleScan {
  readonly #next: Uint16Array;
  readonly #start: number;
  /** Bytes by which a needle may reach into the next quarter. */
  readonly #overlap: number;

  /**
   * Makes the table.
   * @param needles lower-case ASCII, none empty
   */
  constructor(needles: readonly string[]) {
    assert(
      needles.every((needle) => /^[\x20-\x7e]+$/.test(needle) && needle === needle.toLowerCase()),
      'needles are lower-case ASCII',
    );
    const root = newNode();
    for (const needle of needles) plant(root, needle);
    const nodes = linked(root);
    assert(nodes.length < STATES_MAX, 'the needles have too many states');
    nodes.forEach((node, index) => {
      node.state = node.found ? FOUND : index + 1;
    });
    this.#next = tableOf(nodes);
    this.#start = root.state;
    this.#overlap = Math.max(0, ...needles.map(({ length }) => length - 1));
  }

  foundIn(bytes: Uint8Array): boolean {
    const quarter = bytes.length >> 2;
    return quarter < this.#overlap ? this.#inOne(bytes) : this.#inFour(bytes, quarter);
  }

  #inOne(bytes: Uint8Array): boolean {
    const next = this.#next;
    let state = this.#start;
    for (let at = 0; at < bytes.length; at++) state = next[(state << 8) | (bytes[at] as number)] as number;
    return state === FOUND;
  }

  #inFour(bytes: Uint8Array, quarter: number): boolean {
    const next = this.#next;
    const [second, third, fourth] = [quarter, 2 * quarter, 3 * quarter];
    const last = bytes.length - fourth;
    let a = this.#start;
    let b = a;
    let c = a;
    let d = a;
    let at = 0;
    for (; at < last; at++) {
      a = next[(a << 8) | (bytes[at] as number)] as number;
      b = next[(b << 8) | (bytes[second + at] as number)] as number;
      c = next[(c << 8) | (bytes[third + at] as number)] as number;
      d = next[(d << 8) | (bytes[fourth + at] as number)] as number;
    }
    for (const end = quarter + this.#overlap; at < end; at++) {
      a = next[(a << 8) | (bytes[at] as number)] as number;
      b = next[(b << 8) | (bytes[second + at] as number)] as number;
      c = next[(c << 8) | (bytes[third + at] as number)] as number;
    }
    return a === FOUND || b === FOUND || c === FOUND || d === FOUND;
  }
}
