/** The checks of a run as JUnit XML. */
import type { RunDocument } from '../document.ts';
import { documentText } from './text.ts';

// XML 1.0 allows no control characters but these.
const KNOWN_CONTROLS = '\t\n\r';
const escaped = (text: string): string =>
  text
    .replace(/\p{Cc}/gu, (control) => (KNOWN_CONTROLS.includes(control) ? control : ''))
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');

export function junitXml(document: RunDocument): string {
  const { checks, seconds, startedAt } = document;
  const cases = checks.map(({ name, figure, missed }) => {
    const opened = `  <testcase classname="sluice load" name="${escaped(name)}" time="0">`;
    const said = missed === undefined ? '' : `<failure message="${escaped(missed)}"/>`;
    return `${opened}${said}<system-out>${escaped(figure)}</system-out></testcase>`;
  });
  const failures = checks.filter(({ missed }) => missed !== undefined).length;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuite name="sluice load" tests="${checks.length}" failures="${failures}" errors="0" time="${seconds}" timestamp="${startedAt}">`,
    ...cases,
    `  <system-out>${escaped(documentText(document))}</system-out>`,
    '</testsuite>',
    '',
  ].join('\n');
}
