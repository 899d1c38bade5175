import { limitInWords } from '../../approval/fault-limits.ts'
import type { Envelope } from '../../approval/envelope.ts'
import { inUnits } from '../../gateway/control-mcp/free-fields.ts'
import { printable } from '../../telemetry/printable.ts'
import { formatDuration, roundedDuration } from '../../units/duration.ts'
import { numbered } from '../../units/numbered.ts'

/** Returns the envelope in lines: everything that the signature allows, defaults included. */
export function envelopeLines(envelope: Envelope): string[] {
  const { id, gateway, environment, proposers, targets, effects, faults, maxRate } = envelope
  const { notBefore, expiresAt, ladder, maxStage, maxRun } = envelope
  const life = roundedDuration(Date.parse(expiresAt) - Date.parse(notBefore))
  return [
    `${id}: for the gateway ${gateway} in the environment ${environment}`,
    `in force from ${notBefore} to ${expiresAt} (${life})`,
    `agents that may propose: ${proposers.join(', ')}`,
    ...targets.map(
      ({ server, identity, tools }) => `target ${server}, identity ${identity}: tools ${tools.join(', ')}`,
    ),
    `effects of the tools: ${effects.join(', ')}`,
    ...faults.map(faultLine),
    maxRate === undefined
      ? 'a run has one fault'
      : `a run may have several faults, with rates up to ${maxRate} in all`,
    `the shares of the calls rise by rungs: ${ladder.map(percentIn).join(', then ')}`,
    `a stage lasts up to ${formatDuration(maxStage)}, and a run up to ${formatDuration(maxRun)}`,
    ...limitLines(envelope),
  ].map((line) => printable(line, Infinity))
}

function limitLines({ gate, gateWindow, traffic, windows, budget }: Envelope): string[] {
  const { over, minimum, missing } = gateWindow
  return [
    `the gate of a run has at least: ${gate.map(({ text }) => text).join('; ')}`,
    `the gate measures over up to ${formatDuration(over)}, needs up to ${numbered(minimum, 'call')}, and waits up to ${formatDuration(missing)} without calls`,
    traffic === undefined
      ? 'no limit on faults a minute'
      : `a run ends above ${numbered(traffic.hitsPerMinute, 'fault')} a minute`,
    traffic?.tenants === undefined
      ? 'no limit on tenants'
      : `the recent calls to the targets are of up to ${numbered(traffic.tenants, 'tenant')}`,
    ...(windows.length === 0
      ? ['runs at any time of the week']
      : windows.map(({ days, from, to, zone }) => `runs on ${days} from ${from} to ${to}, ${zone}`)),
    `up to ${numbered(budget.runs, 'run')} in all, and ${budget.perDay} in 24 hours`,
    `suspended after ${numbered(budget.aborts, 'run')} that did not complete`,
  ]
}

function faultLine({ type, maxRate, limits, texts }: Envelope['faults'][number]): string {
  const numbers = Object.entries(limits).map(
    ([path, limit]) =>
      `${path} ${limitInWords(limit, type, path, (value) => inUnits(type, path.split('.'), value))}`,
  )
  const free = texts.map((text) => JSON.stringify(text)).join(', ')
  return [
    `fault ${type}: rate up to ${maxRate}`,
    ...(numbers.length === 0 ? ['no number other than the defaults'] : numbers),
    free === '' ? 'no free text' : `free texts ${free}`,
  ].join('; ')
}

const percentIn = (share: number) => `${Math.round(share * 1_000) / 10}%`
