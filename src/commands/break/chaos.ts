import type { Status } from '../../chaos/control/status.ts'
import { faults } from '../../chaos/faults/index.ts'
import type { DecisionEntry } from '../../chaos/journal/entry.ts'
import type { Env } from '../../config/files/interpolate.ts'
import type { FaultHits, WouldHit } from '../../routes/chaos/would-hit.ts'
import type { Paint } from '../../telemetry/colours.ts'
import { printable } from '../../telemetry/printable.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { listed, optionLines, type Options, optionsOf, type Output } from '../shared/arguments.ts'
import {
  ask,
  awaitedLists,
  type Command,
  common,
  discoveryColumn,
  type Given,
  numberOf,
  paintOf,
  runNamed,
  stateTones,
  textOf,
} from '../shared/control-command.ts'
import { inject } from './chaos/inject.ts'
import { replay } from './chaos/replay.ts'
import { verify } from './chaos/verify.ts'
import { table } from '../shared/table.ts'
import { numbered } from '../../units/numbered.ts'

/**
 * Returns the usage of `breakwater chaos`. An option that only some commands have is shown with the names of these
 * commands.
 */
export function usageOf(common: Options, commands: Readonly<Record<string, Command>>): string {
  return `breakwater chaos: drives the chaos mesh of a running gateway, over its control port

  breakwater chaos status               shows the armed faults and their effects
  breakwater chaos arm | disarm         arms the faults of the plan | disarms all faults
  breakwater chaos kill | unkill        stops all faults and blocks new ones | allows faults again
  breakwater chaos renew                renews the lease
  breakwater chaos inject TARGET TYPE   injects a fault for a time; TARGET is SERVER or SERVER/TOOL, as globs
  breakwater chaos types                lists the types of faults; needs no gateway
  breakwater chaos clear FAULT          ends an injected fault, by name
  breakwater chaos clear-all            ends all injected faults
  breakwater chaos explain CALL         tells why a call was hit or not; CALL is its id, callKey or intent
  breakwater chaos plan                 shows recent hits, and hits prevented by shadow mode
  breakwater chaos replay               repeats the decisions of a journal and compares; needs no gateway
  breakwater chaos verify               checks that no entry of a journal was changed, cut off or exchanged; needs no gateway

${optionLines([...listed(common), ...optionsOf(commands)])}

  TYPE is a type listed by \`breakwater chaos types\`, such as conn.latency, or a type of mcp-chaos-monkey: latency, error,
  timeout, malformed, connection-refused, connection-drop, rate-limit or schema-mismatch. A DURATION is 250ms, 10s, 5m
  or a plain number of milliseconds. With the types of mcp-chaos-monkey, plain numbers for --duration and --retry-after
  are seconds, as in that tool. In \`status\`, DISCOVERY counts hits on the gateway's own requests. Exit codes: 0;
  1 on failure; 2 for wrong arguments.`
}

function statusLines(status: Status, width: number, paint: Paint): string[] {
  const { state, since, by, why, mode, seed, environment, refusal, leaseRemainingMs, engineErrors } = status
  const lines = [
    `${paint(stateTones[state], state)} since ${new Date(since).toISOString()} by ${printable(by)}: ${printable(why)}`,
    `mode ${mode}, seed ${printable(String(seed))}, environment ${printable(environment ?? 'not set')}`,
  ]
  if (refusal !== undefined) lines.push(`"chaos arm" would be refused: ${refusal.replace(/^refused: /, '')}`)
  if (leaseRemainingMs !== undefined) lines.push(`ends in ${left(leaseRemainingMs)} unless it is renewed`)
  if (engineErrors > 0)
    lines.push(`the engine failed ${numbered(engineErrors, 'time')}: this run is not valid`)
  if (status.faults.length === 0) return [...lines, 'no faults']
  const head = ['FAULT', 'TYPE', 'TARGET', 'SIDE', 'RATE', 'LEFT']
  const own = discoveryColumn(status.faults)
  const counts = ['DECIDED', 'HITS', ...own.head, 'OVERFLOW', 'MASKED', 'DELAYED', 'SURFACED', 'ESCAPED']
  const rows = status.faults.map((fault) => [
    fault.name,
    fault.type,
    fault.target,
    fault.side,
    fault.rate,
    fault.armed ? left(fault.remainingMs) : { text: 'off', tone: 'aside' as const },
    fault.decided,
    fault.hits,
    ...own.cells(fault),
    fault.overflow,
    fault.masked,
    fault.delayed,
    fault.surfaced,
    fault.escaped,
  ])
  const notes = status.faults.flatMap(({ name, overflow, notReached, config }) => [
    ...(overflow > 0
      ? [
          `${printable(name)} left out ${numbered(overflow, 'call')}, because it already held maxConcurrent calls (${config.maxConcurrent})`,
        ]
      : []),
    ...(notReached > 0
      ? [`${printable(name)} did not reach ${notReached} more calls: they ended before the fault took effect`]
      : []),
  ])
  return [
    ...lines,
    ...notes,
    ...awaitedLists(status.faults),
    '',
    ...table([...head, ...counts], rows, width, paint),
  ]
}

const left = (ms: number) => roundedDuration(Math.ceil(ms / 1_000) * 1_000)

const status: Command = {
  run: (given) =>
    ask(given, { method: 'GET', path: '/admin/chaos' }, (answer: Status) =>
      statusLines(answer, given.width, paintOf(given)),
    ),
}

const attribution = {
  by: { kind: 'text', value: 'WHO', about: 'for the journal' },
  why: { kind: 'text', value: 'WHY', about: 'for the journal' },
} as const

function turning(name: string, show: (answer: Status, given: Given) => readonly string[]): Command {
  return {
    options: attribution,
    run(given) {
      const { values } = given
      const by = textOf(values, 'by') ?? 'breakwater chaos'
      const why = textOf(values, 'why')
      const body = { by, ...(why === undefined ? {} : { why }) }
      const request = { method: 'POST', path: `/admin/chaos/${name}`, body } as const
      return ask(given, request, (answer: Status) => show(answer, given))
    },
  }
}

const whole = (answer: Status, given: Given) => statusLines(answer, given.width, paintOf(given))

const arm = turning('arm', whole)
const disarm = turning('disarm', () => ['disarmed'])
const kill = turning('kill', ({ by, why }) => [`killed by ${printable(by)}: ${printable(why)}`])
const unkill = turning('unkill', () => ['the kill switch is off; arm faults with: breakwater chaos arm'])
const renew = turning('renew', whole)

const clear: Command = {
  positionals: ['FAULT'],
  run(given) {
    const [fault] = given.positionals
    return ask(
      given,
      { method: 'POST', path: '/chaos/clear', body: { faultId: fault } },
      () => [`cleared ${fault}`],
      ({ existed }: { readonly existed: boolean }) =>
        existed
          ? undefined
          : `there is no injected fault ${fault} (any more); end faults of the plan with: breakwater chaos disarm`,
    )
  },
}

const clearAll: Command = {
  run: (args) =>
    ask(args, { method: 'POST', path: '/chaos/clear-all' }, ({ count }: { readonly count: number }) => [
      count === 1 ? 'cleared 1 fault' : `cleared ${count} faults`,
    ]),
}

interface Explained {
  readonly decisions: readonly (DecisionEntry & { readonly words: string })[]
}

const explain: Command = {
  positionals: ['CALL'],
  run(args) {
    const path = `/admin/chaos/explain?call=${encodeURIComponent(args.positionals[0] ?? '')}`
    return ask(args, { method: 'GET', path }, ({ decisions }: Explained) => {
      let last: string | undefined
      return decisions.flatMap(({ callKey, orderDependent, at, call, words }) => {
        const isNew = callKey !== last
        last = callKey
        const order = orderDependent ? ' (depends on the order of calls)' : ''
        const title = `call ${String(call.id)} at ${new Date(at).toISOString()}, key ${callKey}${order}`
        return [...(isNew ? [printable(title)] : []), `  ${printable(words)}`]
      })
    })
  },
}

const plan: Command = {
  options: { last: { kind: 'duration', value: 'DURATION', default: '1h', about: 'how far back' } },
  run(args) {
    const last = formatDuration(numberOf(args.values, 'last') ?? 0)
    const path = `/admin/chaos/plan?last=${encodeURIComponent(last)}`
    return ask(args, { method: 'GET', path }, (answer: WouldHit & { readonly mode: string }) => {
      const lines = [`decisions of the last ${last}; the mode now is ${answer.mode}`]
      if (!answer.complete)
        lines.push('the gateway no longer holds older entries: the table counts only the latest')
      if (answer.faults.length === 0) return [...lines, 'no armed fault matched any call']
      const head = ['FAULT', 'TYPE', 'SERVER', 'TOOL', 'DECIDED', 'HIT', 'WOULD HIT']
      return [...lines, '', ...table(head, answer.faults.flatMap(rowsOf), args.width, paintOf(args))]
    })
  },
}

const rowsOf = ({ fault, type, targets }: FaultHits) =>
  targets.map(({ server, tool, decided, hit, wouldHit }) => [
    fault,
    type,
    server,
    tool,
    decided,
    hit,
    wouldHit,
  ])

const types: Command = {
  run({ values, out }) {
    const listed = Object.entries(faults).map(([type, { about }]) => ({ type, about }))
    const width = Math.max(...listed.map(({ type }) => type.length))
    if (values.json === true) out.stdout(JSON.stringify(listed, undefined, 2))
    else for (const { type, about } of listed) out.stdout(`${type.padEnd(width)}  ${about}`)
    return Promise.resolve(0)
  },
}

const commands: Readonly<Record<string, Command>> = {
  status,
  inject,
  clear,
  'clear-all': clearAll,
  types,
  arm,
  disarm,
  kill,
  unkill,
  renew,
  explain,
  replay,
  verify,
  plan,
}

const usage = usageOf(common, commands)

/** `breakwater chaos …`: resolves to the exit code; 2 for wrong arguments. */
export const chaos = (args: readonly string[], out: Output, env: Env, width?: number): Promise<number> =>
  runNamed(args, { usage, commands }, out, env, width)
