/** Writes YAML in the many ways in which people write it, and notes in which line each value begins. */
import { pick, type Random } from '../random.ts';

/** A scalar as it is written, a list or a map. A map may have a name twice. */
export type Node = { raw: string; literal?: string | undefined } | { list: Node[] } | { map: Entry[] };
export type Entry = readonly [name: string, node: Node];

const PLAIN_NAME = /^[A-Za-z][\w-]*$/;
/** Words that are no texts when they stand without quotes. */
const WORDS = /^(null|true|false|~)?$/i;
const PLAIN = /^[A-Za-z][\w./-]*(:[\w/][\w./-]*)?$/;
/** Where everything is read as text, numbers need no quotes either. */
const PLAIN_TEXT = /^\w([\w .-]*\w)?$/;
const NULL = /^(null|Null|NULL)$/;
/** Control characters, half surrogates and the like, which are written as escapes alone. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/u;

/** Whether a text may stand as it is, in lines of its own. */
function isLiteral(text: string): boolean {
  const lines = text.split('\n');
  return lines.length > 1 && lines.every((line) => /^\S(.*\S)?$/.test(line) && !UNPRINTABLE.test(line));
}

const escaped = (text: string): string =>
  JSON.stringify(text).replaceAll(
    /[\x7f-\uffff]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

/** @param isText whether the field takes everything as text, also what YAML has for a number */
export function textNode(text: string, random: Random, isText = false): Node {
  const isPlain = isText ? PLAIN_TEXT.test(text) && !NULL.test(text) : PLAIN.test(text) && !WORDS.test(text);
  const ways = [
    ...(isPlain ? [text, text] : []),
    ...(UNPRINTABLE.test(text) ? [] : [`'${text.replaceAll("'", "''")}'`, JSON.stringify(text)]),
    escaped(text),
  ];
  return { raw: pick(random, ways), literal: isLiteral(text) ? text : undefined };
}

export function numberNode(number: number, random: Random): Node {
  const ways = [`${number}`, `${number}`, `${number}`, `${number}.0`, `${number}e0`, `+${number}`];
  return { raw: pick(random, [...ways, `0x${number.toString(16)}`, `0o${number.toString(8)}`]) };
}

export const booleanNode = (value: boolean, random: Random): Node => ({
  raw: pick(random, value ? ['true', 'true', 'True', 'TRUE'] : ['false', 'false', 'False', 'FALSE']),
});

export class YamlWriter {
  text = '';
  /** Line of each value, from 1, by its path, such as `projects.0.plan`. A name's second value has a `'` behind its path. */
  readonly lines = new Map<string, number>();
  readonly #random: Random;
  /** Whether the last value may be followed by a comment. */
  #isOpen = true;
  #line = 1;

  constructor(random: Random) {
    this.#random = random;
  }

  put(text: string): void {
    this.text += text;
    for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) this.#line++;
  }

  /** A map in block style, from where the writer stands. */
  block(map: readonly Entry[], path: string, indent: number): void {
    map.forEach(([name, node], at) => {
      if (at > 0) this.#newLine(indent);
      const inside = this.#mark(path, name);
      this.put(`${this.#name(name)}${this.#one(['', '', ' '])}:`);
      this.#value(node, inside, indent);
    });
  }

  /** A value in flow style, from where the writer stands. */
  flow(node: Node, path: string, indent: number): void {
    if ('raw' in node) return this.put(node.raw);
    const gap = (): string => this.#one(['', ' ', '', `\n${' '.repeat(indent + 1)}`]);
    const [open, close] = 'list' in node ? '[]' : '{}';
    this.put(`${open}${gap()}`);
    const members: Entry[] = 'list' in node ? node.list.map((one, at) => [`${at}`, one]) : node.map;
    members.forEach(([name, member], at) => {
      if (at > 0) this.put(`${gap()},${gap()}`);
      const inside = this.#mark(path, name);
      if ('map' in node) this.put(`${this.#name(name)}: `);
      this.flow(member, inside, indent);
    });
    this.put(`${gap()}${close}`);
  }

  #value(node: Node, path: string, indent: number): void {
    const isEmpty = ('list' in node && node.list.length === 0) || ('map' in node && node.map.length === 0);
    if ('raw' in node) this.#scalar(node, indent);
    else if (isEmpty || this.#random() < 0.3) {
      this.put(' ');
      this.flow(node, path, indent + 2);
    } else if ('map' in node) {
      this.#newLine(indent + 2);
      this.block(node.map, path, indent + 2);
    } else this.list(node.list, path, indent + this.#one([0, 2]));
  }

  /** A list in block style, in the lines behind the present one. */
  list(list: readonly Node[], path: string, indent: number): void {
    list.forEach((node, at) => {
      this.#newLine(indent);
      this.put('-');
      const inside = this.#mark(path, `${at}`);
      this.put(' ');
      if (!('map' in node) || node.map.length === 0 || this.#random() < 0.2)
        this.flow(node, inside, indent + 2);
      else this.block(node.map, inside, indent + 2);
    });
  }

  #scalar({ raw, literal }: { raw: string; literal?: string | undefined }, indent: number): void {
    if (literal === undefined || this.#random() < 0.5) return this.put(` ${raw}`);
    const newLine = `\n${' '.repeat(indent + 2)}`;
    this.put(` |-${newLine}${literal.replaceAll('\n', newLine)}`);
    this.#isOpen = false;
  }

  #newLine(indent: number): void {
    if (this.#isOpen) this.put(this.#one(['', '', '', ' ', ' # as it was', '\n', '\n# {a comment: [']));
    this.#isOpen = true;
    this.put(`\n${' '.repeat(indent)}`);
  }

  #name(name: string): string {
    const isPlain = PLAIN_NAME.test(name) || name === '__proto__';
    return this.#one([...(isPlain ? [name, name, name] : []), JSON.stringify(name)]);
  }

  #mark(path: string, name: string): string {
    const inside = path === '' ? name : `${path}.${name}`;
    this.lines.set(this.lines.has(inside) ? `${inside}'` : inside, this.#line);
    return inside;
  }

  #one<T>(list: readonly T[]): T {
    return pick(this.#random, list);
  }
}
