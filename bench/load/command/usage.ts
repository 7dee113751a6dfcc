/** The text of `sluice load --help`. */
export const LOAD_USAGE = `sluice load --dsn http://KEY@HOST:PORT/ID [--dsn …] [options]
sluice load merge A.json B.json … [--json FILE] [--report FILE] [thresholds]

Without --dsn it sends to the sluice dev of this folder (of --data-dir DIR, as dev has it). Rates are intended rates: what the server delays is counted as delay.

Where to
  --dsn DSN            a project; several share the load by Zipf's law, the first gets most
  --dsn-file FILE      a DSN a line; lines that begin with # are left out
  --projects N --api URL   creates N projects by the management API (its token in SLUICE_ADMIN_TOKEN) and sends to them
  --even               every project gets alike
  --url URL            where to send, when it is not the DSN's host; several share the load
  --host NAME          the Host header, when it is not the URL's
  --header 'NAME: VALUE'   a further header; may be repeated

How fast
  --rate N             requests a second, open loop; without a rate closed loop, as fast as answers come
  --duration T         what is measured (10s), after --warmup T (1s); T is 500ms, 30s, 1m30s, 1h or seconds; N may be 1k or 2M
  --stages T:N,…       linear ramps: 30s:1000,2m:5000,10s:20000; begins at --rate (0); a time of 0s is a jump
  --spike T+T:N        at the first T, for the second T, N requests a second: 60s+5s:20000; may be repeated
  --find-knee          raises the rate from --rate (100), in steps of --step T (10s), until a threshold breaks
  --until WHEN         ends earlier: at a time (2026-01-31T12:00:00Z), or after so many requests (100000)
  --processes N        N processes share the load, a core each: one result
  --part I/N           sends the part I (from 0) of a plan that N generators share: 0/3, 1/3, 2/3; merge makes one result
  --start-at TIME      waits until then, so that several generators begin together
  --abort-on COND      ends as failed when COND holds for three seconds: p99>500 (ms), p50>20, p99.9>900, failures>1%; may be repeated
  --connections N      busy clients (64)
  --rare-clients N     clients beside them that send seldom, each with a connection of its own (0)
  --rare-share P       their share of the requests (30%)
  --no-keep-alive      a connection for each request
  --timeout T          a request without an answer for so long has failed (10s)

What
  --mix MIX            canonical (default), or weights: event=80,transaction=10,log=5,replay=5,large=1,
                       span, session, check_in, feedback, client_report, attachment, otlp-traces, otlp-logs
  --sizes SIZE=W,…     events and transactions are padded to these sizes: 2k=70,20k=25,200k=5
  --corpus DIR         recorded envelopes, a file each, in the place of the mix; their ids are renewed
  --encoding E         sdk (default: as SDKs do), none, gzip, deflate, br, zstd
  --seed N             (1)

What must hold (exit status 1 when something does not)
  --expect STATUS      a status that is no failure beside 200; may be repeated
  --min-rate N  --max-p95 MS  --max-p99 MS  --max-p999 MS  --max-failures N (0)  --max-failure-rate P
  --fail-on COND       fails when COND holds at the end: p99.9>900, rate<500, and of a kind, a status, a stage, the wait for a
                       connection or the service time: transaction:p95>200, 429:share>1%, 'stage 2:p99>300', wait:p99>50;
                       mean, max and count as well; may be repeated
  --max-unstored N     how many may be told 200 and not stored (0 with --verify and --verify-with)
  --verify             what was told 200 is stored, once, and counted
  --verify-with CMD    of any server: CMD gets the ids on its input, a line each, and prints those that are stored
  --sink SINK          where the processor stores: ndjson:DIR, postgres://…, clickhouse://… or s3://… (SLUICE_SINK)
  --admin URL          admin port of ingest: usage before and after for --verify, the server's metrics for --report
  --verify-wait T      for what is still queued (60s); what takes longer than --late T (10s) is told as late

Results
  --json FILE          the result with its histograms, - for standard output, and then nothing else (but on a terminal)
  --report FILE        a page that opens offline
  --junit FILE         for CI
  --summary FILE       Markdown; in GitHub's jobs the job's summary, if nothing else is said
  --stream FILE        a line of JSON a second while it runs, - for standard output
  --quiet              no line a second

Exit status: 0, 1 when a threshold is missed or an item is lost, 2 for a wrong command line.`;
