import type { Env } from '../../config/files/interpolate.ts'
import {
  Misuse,
  optionLines,
  optionsOf,
  type Output,
  runCommand,
  unknownCommand,
} from '../shared/arguments.ts'
import { report, reportOptions } from './gameday/report.ts'

const usage = `breakwater gameday: guarded experiments as one exercise

  breakwater gameday report [ID]   prints the report on a GameDay, with gaps and actions; needs no gateway

${optionLines(optionsOf({ report: { options: reportOptions } }))}

  Exit codes: 0; 1 on failure; 2 for wrong arguments.`

/** `breakwater gameday …`: resolves to the exit code; 2 for wrong arguments. */
export function gameday([name = '', ...rest]: readonly string[], out: Output, env: Env): Promise<number> {
  if (name === 'report') return report(rest, out, env)
  const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : []
  return runCommand(own, { usage, options: {} }, out, () => {
    throw new Misuse(unknownCommand(name, ['report']))
  })
}
