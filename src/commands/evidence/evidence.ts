import type { Env } from '../../config/files/interpolate.ts'
import type { ComplianceMapping } from '../../evidence/compliance.ts'
import { evidenceDocument, reportOn } from '../../evidence/compliance-report.ts'
import { systemClock } from '../../mesh/clock.ts'
import { version } from '../../protocol/identity.ts'
import {
  Misuse,
  optionLines,
  optionsOf,
  type Output,
  runCommand,
  unknownCommand,
  UnusableInput,
  type Values,
} from '../shared/arguments.ts'
import { table } from '../shared/table.ts'
import { documentOptions, printDocument, verifyDocument } from './documents.ts'
import { mappingAt, shippedFrameworks, shippedMapping } from './mappings.ts'
import { periodIn, periodOptions, storedRuns, storedRunsOptions } from './stored-runs.ts'

const reportOptions = {
  framework: { kind: 'text', value: 'NAME', about: 'a mapping of `breakwater evidence frameworks`' },
  mapping: { kind: 'text', value: 'FILE', about: 'your own mapping, instead of a shipped one' },
  ...periodOptions,
  ...storedRunsOptions,
  ...documentOptions,
} as const

const verifyOptions = {
  trust: {
    kind: 'text',
    value: 'NAME=PUBLICKEY',
    about: 'name and public key of the signer, as `breakwater key new` prints both; or the key alone',
  },
} as const

const usage = `breakwater evidence: reports on stored runs, as evidence that may support requirements of a framework

  breakwater evidence report        prints the runs of a period for each requirement, with gaps and due dates
  breakwater evidence verify FILE   checks that nobody changed a signed report, also of a GameDay
  breakwater evidence frameworks    lists the shipped mappings

${optionLines(optionsOf({ report: { options: reportOptions }, verify: { options: verifyOptions } }))}

  Exit codes: 0; 1 when no report can be made, or for a report that is changed or not signed with the key; 2 for wrong
  arguments.`

/** `breakwater evidence …`: resolves to the exit code; 2 for wrong arguments. */
export function evidence(args: readonly string[], out: Output, env: Env): Promise<number> {
  const [name = '', ...rest] = args
  switch (name) {
    case 'report':
      return runCommand(rest, { usage, options: reportOptions, positionals: [] }, out, (values) =>
        report(values, out, env),
      )
    case 'verify':
      return runCommand(
        rest,
        { usage, options: verifyOptions, positionals: ['FILE'] },
        out,
        ({ trust }, [file = '']) => verifyDocument(file, trust, out),
      )
    case 'frameworks':
      return runCommand(rest, { usage, options: {}, positionals: [] }, out, () => frameworks(out))
    default: {
      const own = ['help', '--help', '-h'].includes(name) ? ['--help'] : []
      return runCommand(own, { usage, options: {} }, out, () => {
        throw new Misuse(unknownCommand(name, ['report', 'verify', 'frameworks']))
      })
    }
  }
}

async function report(values: Values<typeof reportOptions>, out: Output, env: Env): Promise<number> {
  const nowMs = systemClock.wall()
  const period = periodIn(values, nowMs)
  if (period === undefined)
    throw new Misuse('--quarter QUARTER is missing, such as 2026Q4; or give --period PERIOD')
  const mapping = await mappingIn(values)
  const { runs, problems } = await storedRuns(values, { env, out })
  const made = reportOn(mapping, runs, { period, nowMs, version, problems })
  return printDocument(evidenceDocument, made, values, out)
}

/** Rejects with a `Misuse` or an `UnusableInput`. */
async function mappingIn({ framework, mapping }: Values<typeof reportOptions>): Promise<ComplianceMapping> {
  if (mapping === undefined) {
    if (framework !== undefined) return shippedMapping(framework)
    throw new Misuse(
      '--framework NAME is missing; see `breakwater evidence frameworks`, or give --mapping FILE',
    )
  }
  const read = await mappingAt(mapping)
  if (framework !== undefined && framework !== read.framework)
    throw new UnusableInput(`${mapping} is a mapping of "${read.framework}", not of "${framework}"`)
  return read
}

async function frameworks(out: Output): Promise<number> {
  const names = await shippedFrameworks()
  const mappings = await Promise.all(names.map(shippedMapping))
  const rows = mappings.map(({ framework, title, requirements, asOf, checkedBy }) => [
    framework,
    requirements.length,
    asOf,
    checkedBy ?? 'nobody',
    title,
  ])
  const head = ['FRAMEWORK', 'REQUIREMENTS', 'AS OF', 'CHECKED BY', 'TITLE']
  for (const line of table(head, rows, out.width ?? Infinity, out.paint)) out.stdout(line)
  return 0
}
