/** The rules for documents, as functions from texts to the sentences that they break. */

export const DECISION_LINES_MAX = 20;
export const DECISION_COLUMNS_MAX = 110;
const DECISION_PARTS = ['Context. ', 'Decision. ', 'Consequence. '];

/** Short decisions of one form, numbered from 1 on: a new one replaces the one that it supersedes. */
export function decisionSizes(text: string): string[] {
  const problems: string[] = [];
  const entries = text.split(/^(?=#{1,2} )/m).filter((part) => part.startsWith('## '));
  for (const [i, entry] of entries.entries()) {
    const [heading = '', ...body] = entry.split('\n').filter((line) => line.trim() !== '');
    if (!heading.startsWith(`## ${i + 1}. `)) problems.push(`"${heading}" is entry ${i + 1}`);
    if (body.length > DECISION_LINES_MAX) problems.push(`"${heading}" has ${body.length} lines`);
    if (body.some((line) => line.length > DECISION_COLUMNS_MAX))
      problems.push(`"${heading}" has a long line`);
    if (!/ \(\d{4}-\d\d-\d\d, .+\)$/.test(heading)) problems.push(`"${heading}" has no date and status`);
    for (const part of DECISION_PARTS)
      if (body.filter((line) => line.startsWith(part)).length !== 1)
        problems.push(`"${heading}" has not one "${part}"`);
  }
  return problems;
}

/** `DECISIONS.md 3`, `DECISIONS 3, 4 and 7`, also over the end of a comment's line. */
const REFERENCE = /DECISIONS(?:\.md)?[\s*]+(\d+(?:(?:,| and| to)[\s*]+\d+)*)/g;

/** References to decisions that do not exist. */
export function decisionReferences(file: { path: string; text: string }, decisions: string): string[] {
  const known = new Set([...decisions.matchAll(/^## (\d+)\. /gm)].map(([, number]) => number));
  return [...file.text.matchAll(REFERENCE)]
    .flatMap(([, numbers = '']) => numbers.match(/\d+/g) ?? [])
    .filter((number) => !known.has(number))
    .map((number) => `${file.path} names decision ${number}`);
}

/** A screen of 120 columns. */
export const CHANGELOG_LINES_MAX = 50;
const CHANGELOG_COLUMNS = 120;

/** The changelog tells users: each version begins with the way to it, and no section is longer than a screen. */
export function changelogSections(text: string): string[] {
  const problems: string[] = [];
  const rows = (section: string): number =>
    section
      .trimEnd()
      .split('\n')
      .reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / CHANGELOG_COLUMNS)), 0);
  for (const version of text.split(/^(?=## )/m).filter((part) => part.startsWith('## '))) {
    const [head = '', ...sections] = version.split(/^(?=### )/m);
    const title = head.split('\n', 1)[0];
    if (sections.length > 0 && !/^### (Before you upgrade|Upgrading from )/.test(sections[0] ?? ''))
      problems.push(`"${title}" does not begin with the way to it`);
    for (const section of [head, ...sections])
      if (rows(section) > CHANGELOG_LINES_MAX)
        problems.push(`"${title}", "${section.split('\n', 1)[0]}" has ${rows(section)} lines`);
  }
  return problems;
}
