import type { Status } from '../../chaos/control/status.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Verdict } from '../../mesh/call.ts'
import { wrongVerdicts } from '../../mesh/classify.ts'
import { type Clock, keepAlive, type Millis, systemClock } from '../../mesh/clock.ts'
import { DEFAULT_SET } from '../../mesh/settings.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { type Paint, plain, type Tone } from '../../telemetry/colours.ts'
import { printable } from '../../telemetry/printable.ts'
import { roundedDuration } from '../../units/duration.ts'
import { controlAccess, Misuse, optionLines, type Output, runCommand } from '../shared/arguments.ts'
import { awaitedLists, discoveryColumn, stateTones } from '../shared/control-command.ts'
import { type Control, controlAt } from '../shared/control.ts'
import { samplesIn } from '../shared/samples.ts'
import { type Cell, table } from '../shared/table.ts'

const options = {
  watch: { kind: 'flag', about: 'refreshes until interrupted, with rates since the last refresh' },
  every: { kind: 'duration', min: 500, value: 'DURATION', about: 'with --watch, the interval (default: 2s)' },
  ...controlAccess,
  json: { kind: 'flag', about: 'prints the answers as JSON' },
} as const

/** Interval of `--watch`, in milliseconds. */
const EVERY_MS: Millis = 2_000

const usage = `breakwater status

  Shows a running gateway: its servers, breakers not closed, armed faults, and tool calls since the start. FAILED calls
  have no reply, an error, or a reply known to be wrong. With --watch, also shows the calls per second. In the table of
  faults, DISCOVERY counts hits on the gateway's own requests.

${optionLines(options)}

  Exit codes: 0; 1 when the gateway does not answer; 2 for wrong arguments.`

/** `breakwater status`. Resolves to the exit code; with `--watch`, resolves when the gateway no longer answers. */
export function status(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, async (values) => {
    if (values.every !== undefined && !values.watch) throw new Misuse('--every needs --watch')
    const control = controlAt({ base: values.control, token: values.token, env })
    const show = (seen: Seen, before?: Seen) => {
      const lines = values.json
        ? [JSON.stringify(seen, undefined, 2)]
        : statusLines(seen, before, out.width ?? Infinity, out.paint ?? plain)
      if (values.watch && out.page !== undefined) out.page(lines)
      else for (const line of lines) out.stdout(line)
    }
    if (values.watch) return watch(control, values.every ?? EVERY_MS, show, out)
    const seen = await look(control, systemClock)
    if (typeof seen !== 'string') show(seen)
    else out.stderr(`breakwater: ${seen}`)
    return typeof seen === 'string' ? 1 : 0
  })
}

async function watch(
  control: Control,
  everyMs: Millis,
  show: (seen: Seen, before?: Seen) => void,
  out: Output,
): Promise<number> {
  const letEnd = keepAlive()
  const never = new Cancellation()
  for (let before: Seen | undefined; ;) {
    if (out.isClosed === true) {
      letEnd()
      return 0
    }
    const seen = await look(control, systemClock)
    if (typeof seen === 'string') {
      out.stderr(`breakwater: ${seen}`)
      letEnd()
      return 1
    }
    show(seen, before)
    before = seen
    await systemClock.sleep(everyMs, never)
  }
}

interface SeenServer {
  readonly name: string
  readonly state: 'starting' | 'up' | 'down'
  /** Time of the last change of state, in ISO 8601. */
  readonly since: string
  readonly tools: number
  readonly error?: string
  /** The reason of a failure; also present for an unhealthy server that is up. */
  readonly failureReason?: string
}

interface SeenBreaker {
  readonly set: string
  readonly server: string
  readonly tool?: string
  readonly state: string
  /** Time of the last change of state, in milliseconds since the Unix epoch. */
  readonly since: number
  readonly why?: string
  readonly manual: boolean
  readonly nextProbeInMs?: number
}

/**
 * Tool calls of a server since the gateway's start. `failed` counts errors, missing replies and wrong replies, but not
 * agents' errors.
 */
interface Calls {
  readonly all: number
  readonly failed: number
}

/** All answers of the control port for one refresh. */
export interface Seen {
  /** Monotonic and wall time, in milliseconds. */
  readonly at: Millis
  readonly wall: Millis
  readonly servers: readonly SeenServer[]
  readonly breakers: readonly SeenBreaker[]
  readonly chaos: Status
  readonly calls: Readonly<Record<string, Calls>>
  /** True if the last reload was refused, so the gateway still uses an older config than the file. */
  readonly reloadRefused: boolean
}

/** Requests all data that the command shows; resolves to a message on failure. */
async function look(control: Control, clock: Pick<Clock, 'now' | 'wall'>): Promise<Seen | string> {
  const get = (path: string) => control({ method: 'GET', path })
  const [servers, breakers, chaos, metrics] = await Promise.all([
    get('/admin/servers'),
    get('/admin/breakers'),
    get('/admin/chaos'),
    control({ method: 'GET', path: '/metrics', isText: true }),
  ])
  for (const answered of [servers, breakers, chaos, metrics]) if (!answered.ok) return answered.message
  const valueOf = (answered: typeof servers) => (answered.ok ? answered.value : undefined)
  const [listed, kept, mesh] = [valueOf(servers), valueOf(breakers), valueOf(chaos)]
  if (!Array.isArray(listed) || !Array.isArray(kept) || !isObject(mesh))
    return 'the control port does not answer like a gateway'
  return {
    at: clock.now(),
    wall: clock.wall(),
    servers: listed as SeenServer[],
    breakers: kept as SeenBreaker[],
    chaos: mesh as unknown as Status,
    calls: callsIn(String(valueOf(metrics))),
    reloadRefused: /^breakwater_config_reload_success 0$/m.test(String(valueOf(metrics))),
  }
}

/** Outcomes that are not failures of a server: the agent cancelled the call, or sent an invalid call. */
const ofAgents = new Set(['cancelled', 'caller_error'])

/** Reads the tool calls of each server from metrics in Prometheus format. */
export function callsIn(metrics: string): Record<string, Calls> {
  const calls: Record<string, { all: number; failed: number }> = {}
  for (const { name, labels, value: count } of samplesIn(metrics)) {
    const { server, outcome, verdict } = labels
    if (name !== 'breakwater_tool_call_verdicts_total' || !Number.isFinite(count)) continue
    if (server === undefined || outcome === undefined) continue
    const sum = (calls[server] ??= { all: 0, failed: 0 })
    sum.all += count
    const isWrong = outcome !== 'returned' || wrongVerdicts.has(verdict as Verdict)
    if (isWrong && !ofAgents.has(outcome)) sum.failed += count
  }
  return calls
}

const serverTones: Readonly<Record<SeenServer['state'], Tone>> = {
  up: 'good',
  starting: 'doubtful',
  down: 'bad',
}

/** Returns the lines that show `seen`. With an earlier `before`, the lines include the rates since then. */
export function statusLines(seen: Seen, before: Seen | undefined, width: number, paint: Paint): string[] {
  const refused =
    'the last reload was refused, so the config before stays in force; for the reason run: breakwater validate'
  return [
    ...(seen.reloadRefused ? [paint('bad', refused), ''] : []),
    ...serverLines(seen, before, width, paint),
    '',
    ...breakerLines(seen, width, paint),
    ...faultLines(seen, width, paint),
  ]
}

function serverLines(
  { at, wall, servers, calls }: Seen,
  before: Seen | undefined,
  width: number,
  paint: Paint,
): string[] {
  if (servers.length === 0) return ['no servers']
  const seconds = before === undefined ? 0 : (at - before.at) / 1_000
  const head = [
    'SERVER',
    'STATE',
    'FOR',
    'TOOLS',
    'CALLS',
    'FAILED',
    ...(before ? ['CALLS/S', 'FAILED/S'] : []),
  ]
  const rows = servers.map(({ name, state, since, tools, error, failureReason }): Cell[] => {
    const now = calls[name] ?? { all: 0, failed: 0 }
    const then = before?.calls[name] ?? { all: 0, failed: 0 }
    // A restarted gateway counts from 0.
    const rate = (key: keyof Calls) => (Math.max(0, now[key] - then[key]) / seconds).toFixed(1)
    return [
      name,
      { text: state, tone: serverTones[state] },
      roundedDuration(Math.max(0, wall - Date.parse(since))),
      tools,
      now.all,
      now.failed === 0 ? 0 : { text: failedOf(now), tone: 'bad' },
      ...(before ? [rate('all'), rate('failed')] : []),
      troubleOf(state === 'up' ? failureReason : error),
    ]
  })
  return table([...head, ''], rows, width, paint)
}

const troubleOf = (text: string | undefined): Cell => (text === undefined ? '' : { text, tone: 'bad' })

const failedOf = ({ all, failed }: Calls) => {
  const percent = (failed / all) * 100
  return `${failed} (${percent < 10 ? percent.toPrecision(2) : percent.toFixed()} %)`
}

function breakerLines({ wall, breakers }: Seen, width: number, paint: Paint): string[] {
  const open = breakers.filter(({ state }) => state !== 'closed')
  if (open.length === 0)
    return [
      breakers.length === 0 ? 'no gate or breaker has seen a call yet' : 'all gates and breakers are closed',
    ]
  const isOfArms = open.some(({ set }) => set !== DEFAULT_SET)
  const rows = open.map(({ set, server, tool, state, since, why, manual, nextProbeInMs }): Cell[] => [
    server,
    tool === '*' ? '(all, by its gate)' : (tool ?? '(other requests)'),
    ...(isOfArms ? [set] : []),
    { text: state, tone: state === 'half_open' ? 'doubtful' : 'bad' },
    roundedDuration(Math.max(0, wall - since)),
    manual ? 'by hand' : nextProbeInMs === undefined ? '' : roundedDuration(nextProbeInMs),
    why ?? '',
  ])
  const head = ['BREAKER', 'TOOL', ...(isOfArms ? ['SET'] : []), 'STATE', 'FOR', 'PROBE IN', 'WHY']
  return table(head, rows, width, paint)
}

function faultLines({ chaos, wall }: Seen, width: number, paint: Paint): string[] {
  const { state, since, by, why } = chaos
  const armed = chaos.faults.filter((fault) => fault.armed)
  const painted = `faults ${paint(stateTones[state], state)}`
  const line = `${painted} for ${roundedDuration(Math.max(0, wall - since))} by ${printable(by)}: ${printable(why)}`
  if (armed.length === 0) return [line]
  const own = discoveryColumn(armed)
  const rows = armed.map((fault): Cell[] => [
    fault.name,
    fault.type,
    fault.target,
    fault.rate,
    roundedDuration(fault.remainingMs),
    fault.hits,
    ...own.cells(fault),
  ])
  const head = ['FAULT', 'TYPE', 'TARGET', 'RATE', 'LEFT', 'HITS', ...own.head]
  return [line, ...awaitedLists(armed), '', ...table(head, rows, width, paint)]
}
