/**
 * Finds whether bytes hold any of many needles, ignoring ASCII case: one table look-up per byte, whatever their number (Aho and
 * Corasick 1975, with every failure link followed when the table is made). It stops at the first hit.
 *
 * Measured with the needles of all filters on a browser event of 1.9 KB without a hit (Node 20): this 2.7 µs, one regular expression 6.4 µs on
 * lowered text and 9.0 µs with the i flag, `includes` or `Buffer.indexOf` per needle 40 to 46 µs; JSON.parse and the filters 6.3 µs.
 */
import { assert } from '../lib/assert.ts';

/** Row 0 of the table, so that the scan compares with a constant. */
const FOUND = 0;

type Node = { children: Map<number, Node>; fail: Node | undefined; found: boolean; row: number };

const newNode = (): Node => ({ children: new Map(), fail: undefined, found: false, row: FOUND });

/** Column of each byte: 0 for those in no needle, one for both cases of a letter. */
function columnsOf(needles: readonly string[]): { columns: Uint8Array; width: number } {
  const columns = new Uint8Array(256);
  let width = 1;
  for (const char of new Set(needles.join(''))) {
    columns[char.charCodeAt(0)] = width;
    columns[char.toUpperCase().charCodeAt(0)] = width++;
  }
  return { columns, width };
}

function plant(root: Node, needle: string, columns: Uint8Array): void {
  let node = root;
  for (let index = 0; index < needle.length; index++) {
    const column = columns[needle.charCodeAt(index)] as number;
    const next = node.children.get(column) ?? newNode();
    node.children.set(column, next);
    node = next;
  }
  node.found = true;
}

/** All nodes, nearest to the root first, each with the node of its longest proper suffix; what has a found suffix is found. */
function linked(root: Node): Node[] {
  const nodes = [root];
  for (const node of nodes) {
    for (const [column, child] of node.children) {
      let fail = node.fail;
      while (fail && !fail.children.has(column)) fail = fail.fail;
      child.fail = fail?.children.get(column) ?? root;
      child.found ||= child.fail.found;
      nodes.push(child);
    }
  }
  return nodes;
}

export class NeedleScan {
  readonly #columns: Uint8Array;
  readonly #start: number;
  /** `next[row + column]` is the row of the state after a byte of that column; rows are offsets into it. */
  readonly #next: Uint32Array;

  /** @param needles lower-case ASCII, none empty */
  constructor(needles: readonly string[]) {
    assert(
      needles.every((needle) => /^[\x20-\x7e]+$/.test(needle) && needle === needle.toLowerCase()),
      'needles are lower-case ASCII',
    );
    const { columns, width } = columnsOf(needles);
    const root = newNode();
    for (const needle of needles) plant(root, needle, columns);
    const nodes = linked(root);
    nodes.forEach((node, index) => {
      node.row = node.found ? FOUND : (index + 1) * width;
    });
    this.#next = new Uint32Array((nodes.length + 1) * width).fill(root.row);
    for (const node of nodes) {
      if (node.row === FOUND) continue;
      // What a node does not say itself, its suffix does, whose row is complete already.
      if (node.fail) this.#next.copyWithin(node.row, node.fail.row, node.fail.row + width);
      for (const [column, child] of node.children) this.#next[node.row + column] = child.row;
    }
    this.#columns = columns;
    this.#start = root.row;
  }

  foundIn(bytes: Uint8Array): boolean {
    const next = this.#next;
    const columns = this.#columns;
    let row = this.#start;
    for (let index = 0; index < bytes.length; index++) {
      row = next[row + (columns[bytes[index] as number] as number)] as number;
      if (row === FOUND) return true;
    }
    return false;
  }
}
