import type { Status } from '../../chaos/control/status.ts'
import { formatDuration } from '../../units/duration.ts'
import { ask, type Command, type Given, textOf } from './command.ts'
import { table } from './table.ts'

/** What `/admin/chaos` says, for people. */
export function statusLines(status: Status, width: number): string[] {
  const { state, since, by, why, mode, seed, environment, refusal, leaseRemainingMs, engineErrors } = status
  const lines = [
    `${state} since ${new Date(since).toISOString()} by ${by}: ${why}`,
    `mode ${mode}, seed ${seed}, environment ${environment ?? 'not set'}`,
  ]
  if (refusal !== undefined) lines.push(`could not be armed now: ${refusal.replace(/^refused: /, '')}`)
  if (leaseRemainingMs !== undefined) lines.push(`ends in ${left(leaseRemainingMs)} unless it is renewed`)
  if (engineErrors > 0) lines.push(`the engine failed ${engineErrors} times: this run is not valid`)
  if (status.faults.length === 0) return [...lines, 'no faults']
  const head = ['NAME', 'ID', 'TYPE', 'TARGET', 'SIDE', 'RATE', 'LEFT']
  const counts = ['DECIDED', 'HITS', 'MASKED', 'SURFACED', 'ESCAPED']
  const rows = status.faults.map((fault) => [
    fault.name,
    fault.id ?? '-',
    fault.type,
    fault.target,
    fault.side,
    fault.rate,
    fault.armed ? left(fault.remainingMs) : 'off',
    fault.decided,
    fault.hits,
    fault.masked,
    fault.surfaced,
    fault.escaped,
  ])
  return [...lines, '', ...table([...head, ...counts], rows, width)]
}

const left = (ms: number) => formatDuration(Math.ceil(ms / 1_000) * 1_000)

export const status: Command = {
  run: (given) =>
    ask(given, { method: 'GET', path: '/admin/chaos' }, (answer: Status) => statusLines(answer, given.width)),
}

const attribution = { by: { type: 'string' }, why: { type: 'string' } } as const

/** A command that turns one of the switches. */
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

const whole = (answer: Status, { width }: Given) => statusLines(answer, width)

export const arm = turning('arm', whole)
export const disarm = turning('disarm', () => ['disarmed'])
export const kill = turning('kill', ({ by, why }) => [`killed by ${by}: ${why}`])
export const unkill = turning('unkill', () => ['the kill switch is off; nothing is armed by that'])
export const renew = turning('renew', whole)
