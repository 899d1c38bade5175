import { openFates } from '../../../chaos/accounting/counts.ts'
import type { FaultStatus, Status } from '../../../chaos/control/status.ts'
import { roundedDuration } from '../../../units/duration.ts'
import type { Output } from '../../shared/arguments.ts'
import { numbered } from '../../../units/numbered.ts'

/** The counts of a fault: its hits and their outcomes. */
export type Counted = Pick<
  FaultStatus,
  | 'name'
  | 'type'
  | 'injected'
  | 'masked'
  | 'delayed'
  | 'delayedMs'
  | 'surfaced'
  | 'escaped'
  | 'notReached'
  | 'resent'
  | 'rejections'
  | 'discovery'
>

/** Returns a line on a fault: the number of injections, and how many reached the agent. */
export function faultLine(counted: Counted, width = 0): string {
  const { name, type, injected, masked, delayed, delayedMs, surfaced, escaped, notReached } = counted
  const { resent, rejections, discovery } = counted
  const by = delayed === 0 ? '' : ` (${roundedDuration(delayedMs / delayed)} on average)`
  const counts = [
    `injected ${injected}, masked ${masked}, delayed ${delayed}${by}`,
    `surfaced ${surfaced}, escaped ${escaped}, not reached ${notReached}`,
  ]
  const open = openFates(counted)
  if (open > 0) counts.push(`still open ${open}`)
  // These counts are rare and do not belong to the sum above.
  if (resent > 0) counts.push(`sent again ${resent}`)
  if (rejections > 0) counts.push(`rejected while open ${rejections}`)
  if (discovery.injected > 0) counts.push(`own requests of the gateway ${discovery.injected}`)
  return `${name.padEnd(width)}  ${type.padEnd(24)}  ${counts.join(', ')}`
}

/** Returns true if a fault hit any call of agents or any request of the gateway itself. */
export const hasHit = ({ hits, discovery }: Pick<FaultStatus, 'hits' | 'discovery'>): boolean =>
  hits + discovery.hits > 0

/** Reports the faults' hits on standard error, and names idle faults: a test without faults shows nothing. */
export function reportFaults(
  { faults, engineErrors }: Pick<Status, 'faults' | 'engineErrors'>,
  out: Output,
): void {
  const width = Math.max(0, ...faults.map(({ name }) => name.length))
  for (const fault of faults) out.stderr(`breakwater: ${faultLine(fault, width)}`)
  for (const fault of faults) {
    const { name, decided, shadowed, config } = fault
    if (hasHit(fault) || shadowed > 0 || decided === 0 || config.rate === 0) continue
    const hint = config.allowWrites
      ? ''
      : '; only tools known to be read-only are hit, unless allowWrites: true'
    out.stderr(`breakwater: warning: ${name} hit none of ${numbered(decided, 'call')}${hint}`)
  }
  if (engineErrors > 0)
    out.stderr(`breakwater: warning: the engine failed ${numbered(engineErrors, 'time')}: not a valid test`)
}
