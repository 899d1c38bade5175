import { formatDuration } from '../../units/duration.ts'
import type { Output } from '../start.ts'
import { faultLine } from '../wrap/report.ts'
import type { Scenario } from './library.ts'
import type { Run, RunOptions } from './run.ts'

/** Says what is about to happen, and what to expect of the mesh. */
export function introduce(
  { name, description, expect }: Scenario,
  { server, durationMs }: RunOptions,
  out: Output,
): void {
  out.stdout(`${name}: ${description}`)
  out.stdout(`Runs for ${formatDuration(durationMs)} against ${server}. What to expect:`)
  for (const sentence of expect) out.stdout(`  - ${sentence}`)
}

/** Says what each fault did; and on standard error, why the run proves nothing. */
export function report({ faults, flaws }: Run, out: Output): void {
  const width = Math.max(0, ...faults.map(({ name }) => name.length))
  for (const { name, id, counts } of faults) {
    out.stdout(
      counts === undefined ? `${name} (${id}): nothing is known` : faultLine({ ...counts, name }, width),
    )
    if (counts !== undefined && counts.hits > 0 && counts.concurrent > 0)
      out.stdout(`${' '.repeat(width)}  ${counts.concurrent} calls were still held when it was cleared`)
  }
  for (const flaw of flaws) out.stderr(`breakwater: INVALID: ${flaw}`)
}
