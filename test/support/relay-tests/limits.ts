/**
 * Envelopes of which Relay's tests say what a limit leaves (relay-server/src/utils/rate_limits.rs
 * and the integration tests that are named), and what sluice leaves.
 */
import type { Category } from '../../../src/lib/item-types.ts';

export type LimitCase = {
  /** Functions of Relay's tests. */
  from: string;
  /** Set where sluice does something else than the test expects (docs/relay-tests.md says why). */
  differs?: true;
  /** Types of the items; `minidump` stands for an attachment that is a minidump. */
  types: readonly string[];
  /** The category that is over its limit. */
  over: Category;
  left: readonly string[];
};

const differing = (
  from: string,
  over: Category,
  types: readonly string[],
  left: readonly string[],
): LimitCase => ({
  from,
  differs: true,
  types,
  over,
  left,
});

export const LIMIT_CASES: readonly LimitCase[] = [
  { from: 'enforce_limit_error_event', types: ['event'], over: 'errors', left: [] },
  {
    from: 'enforce_pass_sessions',
    types: Array(3).fill('session'),
    over: 'errors',
    left: Array(3).fill('session'),
  },
  { from: 'enforce_transaction', types: ['transaction'], over: 'transactions', left: [] },
  { from: 'enforce_span', types: ['span', 'span'], over: 'spans', left: [] },
  { from: 'enforce_limit_logs_count', types: ['log', 'log'], over: 'logs', left: [] },
  {
    from: 'enforce_limit_replays',
    types: ['replay_event', 'replay_recording', 'replay_video'],
    over: 'replays',
    left: [],
  },
  differing('enforce_limit_error_with_attachments', 'errors', ['event', 'attachment'], ['attachment']),
  differing('enforce_limit_minidump', 'errors', ['minidump'], ['attachment']),
  differing('user_report.py: user_report_error_quota', 'errors', ['event', 'user_report'], ['user_report']),
  differing(
    'enforce_transaction_attachment_enforced',
    'transactions',
    ['transaction', 'attachment'],
    ['attachment'],
  ),
  differing('enforce_transaction_profile_enforced', 'transactions', ['transaction', 'profile'], ['profile']),
  differing('enforce_transaction_standalone_profile_enforced', 'transactions', ['profile'], ['profile']),
  differing('enforce_span_with_span_attachment', 'spans', ['span', 'attachment'], ['attachment']),
];
