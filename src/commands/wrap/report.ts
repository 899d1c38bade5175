import type { FaultStatus, Status } from '../../chaos/control/status.ts'
import type { Output } from '../start.ts'

/** Counts of a fault that say what it did, and what became of it. */
type Counted = Pick<FaultStatus, 'name' | 'type' | 'hits' | 'masked' | 'surfaced' | 'escaped'>

/** One fault in a line: what was injected, and how much of it the agent got to see. */
export function faultLine({ name, type, hits, masked, surfaced, escaped }: Counted, width = 0): string {
  const counts = `injected ${hits}, masked ${masked}, surfaced ${surfaced}, escaped ${escaped}`
  return `${name.padEnd(width)}  ${type.padEnd(24)}  ${counts}`
}

/** Says on standard error what faults have done, and which of them nothing: a test without faults shows nothing. */
export function reportFaults(
  { faults, engineErrors }: Pick<Status, 'faults' | 'engineErrors'>,
  out: Output,
): void {
  const width = Math.max(0, ...faults.map(({ name }) => name.length))
  for (const fault of faults) out.stderr(`breakwater: ${faultLine(fault, width)}`)
  for (const { name, decided, hits, shadowed, config } of faults) {
    if (hits > 0 || shadowed > 0 || decided === 0 || config.rate === 0) continue
    const hint = config.allowWrites
      ? ''
      : '; tools that are not known to be read-only are hit only with allowWrites: true'
    out.stderr(`breakwater: warning: ${name} hit none of ${decided} calls${hint}`)
  }
  if (engineErrors > 0)
    out.stderr(`breakwater: warning: the engine failed ${engineErrors} times: not a valid test`)
}
